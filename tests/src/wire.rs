//! A TCP proxy before PostgreSQL that counts: the statements that clients send, and
//! the connections they hold. The server's own counters come late, and count what
//! autovacuum does as well.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::db::Db;
use crate::frames::Frames;
use crate::wait::{PATIENCE, eventually_within};

pub struct Wire {
    /// How to connect through it.
    pub options: PgConnectOptions,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Clone, Default)]
pub struct Counts {
    /// How often each statement was executed, by the first line of its text.
    pub sent: BTreeMap<String, usize>,
    /// How often the server was asked to prepare or to run each: it may refuse before.
    pub asked: BTreeMap<String, usize>,
    /// Connections that are open.
    pub open: usize,
    /// The most there were at once.
    pub most: usize,
}

impl Counts {
    pub fn statements(&self) -> usize {
        self.sent.values().sum()
    }

    /// How many of them begin so.
    pub fn of(&self, start: &str) -> usize {
        let these = self.sent.iter().filter(|(text, _)| text.starts_with(start));
        these.map(|(_, count)| count).sum()
    }
}

impl Wire {
    /// For the engine of a test.
    pub async fn of(db: &Db) -> Self {
        let options = (*db.pg().connect_options()).clone();
        Self::before(&options.application_name("engine")).await
    }

    /// The server has to be reached by TCP.
    pub async fn before(options: &PgConnectOptions) -> Self {
        let server = (options.get_host().to_owned(), options.get_port());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = options.clone().host("127.0.0.1").port(socket.local_addr().unwrap().port());
        // What is encrypted cannot be counted.
        let options = options.ssl_mode(PgSslMode::Disable);
        let wire = Self { options, counts: Arc::default() };
        let counts = Arc::clone(&wire.counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let Ok(server) = TcpStream::connect(server.clone()).await else { continue };
                tokio::spawn(connection(client, server, Arc::clone(&counts)));
            }
        });
        wire
    }

    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap().clone()
    }

    /// Waits until an app that has nothing to do has the two connections that it then needs:
    /// here it is heard last that the one is closed by which a start looks for the server.
    pub async fn rests(&self) {
        // One too many is closed after a poll or two.
        eventually_within(4 * PATIENCE, "it sleeps on two connections", async || {
            let counts = self.counts();
            let claims = counts.of("-- Leases due rows") > 0;
            claims && counts.of("SELECT DISTINCT virtualtransaction") > 0 && counts.open == 2
        })
        .await;
    }

    /// Forgets the statements so far.
    pub fn begin(&self) {
        let mut counts = self.counts.lock().unwrap();
        counts.sent.clear();
        counts.asked.clear();
        counts.most = counts.open;
    }
}

async fn connection(client: TcpStream, server: TcpStream, counts: Arc<Mutex<Counts>>) {
    {
        let mut counts = counts.lock().unwrap();
        counts.open += 1;
        counts.most = counts.most.max(counts.open);
    }
    // Whole statements, and their answers, pass without waiting for more.
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_in, mut client_out) = client.into_split();
    let (mut server_in, mut server_out) = server.into_split();
    let answers = tokio::spawn(async move { copy(&mut server_in, &mut client_out).await });
    let mut reader = Reader::new();
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = client_in.read(&mut bytes).await {
        let (executed, asked) = reader.read(&bytes[..count]);
        {
            let mut counts = counts.lock().unwrap();
            for text in asked {
                *counts.asked.entry(text).or_default() += 1;
            }
            for text in executed {
                *counts.sent.entry(text).or_default() += 1;
            }
        }
        if server_out.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    answers.abort();
    counts.lock().unwrap().open -= 1;
}

/// Reads the frontend's messages as they come.
struct Reader {
    frames: Frames,
    /// Texts by the name of their prepared statement.
    prepared: HashMap<Vec<u8>, String>,
    bound: String,
}

impl Reader {
    fn new() -> Self {
        Self { frames: Frames::of_client(), prepared: HashMap::new(), bound: String::new() }
    }

    /// The texts of the statements that are executed, and of those that are asked for.
    fn read(&mut self, bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let (mut executed, mut asked) = (Vec::new(), Vec::new());
        for frame in self.frames.read(bytes) {
            let texts = frame.texts();
            let text = |at: usize| String::from_utf8_lossy(texts[at]).into_owned();
            match frame.kind {
                Some(b'Q') => {
                    executed.push(text(0));
                    asked.push(text(0));
                }
                Some(b'P') => {
                    self.prepared.insert(texts[0].to_vec(), text(1));
                    asked.push(text(1));
                }
                Some(b'B') => {
                    self.bound = self.prepared.get(texts[1]).cloned().unwrap_or_default();
                    asked.push(self.bound.clone());
                }
                Some(b'E') => executed.push(self.bound.clone()),
                _ => {}
            }
        }
        (executed, asked)
    }
}
