//! A TCP proxy before PostgreSQL whose connections can be frozen: open, but no
//! byte arrives any more, as after a cable is pulled. Or closed by the other side, reset,
//! or cut off the moment a commit is on its way, or before it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::db::Db;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    address: SocketAddr,
    /// Where new connections lead.
    server: Arc<Mutex<String>>,
    lines: Arc<Mutex<Vec<Arc<Line>>>>,
    left: Arc<Left>,
    /// New connections are frozen too.
    hangs: Arc<AtomicBool>,
}

/// How many more connections are to end in each of these ways.
#[derive(Default)]
struct Left {
    /// Cut when they commit.
    cuts: AtomicUsize,
    /// Cut before their commits get through.
    losses: AtomicUsize,
    /// Frozen before that.
    freezes: AtomicUsize,
    /// Frozen when they are asked for a sign of life.
    pings: AtomicUsize,
    /// Frozen when the server has sent more than so many bytes, unless it is 0.
    long: AtomicUsize,
    /// What clients send, and what the server reads instead, as long.
    instead: Mutex<Option<[&'static [u8]; 2]>>,
}

/// A Sync alone.
const PING: &[u8] = b"S\0\0\0\x04";

/// What becomes of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Lives,
    Frozen,
    /// The client reads an end, and what it still sends is swallowed.
    HalfClosed,
    Reset,
}

/// A connection through the proxy.
#[derive(Default)]
struct Line {
    listens: AtomicBool,
    fate: watch::Sender<Fate>,
    /// Bytes that the server has sent.
    sent: AtomicUsize,
    cut: AtomicBool,
    left: Arc<Left>,
}

impl Proxy {
    pub async fn before(db: &Db) -> Self {
        let server = Arc::new(Mutex::new(address(&db.pg().connect_options())));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: socket.local_addr().unwrap(),
            server: Arc::clone(&server),
            lines: Arc::default(),
            left: Arc::default(),
            hangs: Arc::default(),
        };
        let (lines, left) = (Arc::clone(&proxy.lines), Arc::clone(&proxy.left));
        let hangs = Arc::clone(&proxy.hangs);
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let to = server.lock().unwrap().clone();
                let Ok(server) = TcpStream::connect(to).await else { continue };
                let line = Arc::new(Line { left: Arc::clone(&left), ..Line::default() });
                if hangs.load(Ordering::SeqCst) {
                    line.fate.send_replace(Fate::Frozen);
                }
                lines.lock().unwrap().push(Arc::clone(&line));
                let (client_in, client_out) = client.into_split();
                let (server_in, server_out) = server.into_split();
                let asked = pump(client_in, server_out, Arc::clone(&line), Towards::Server);
                tokio::spawn(asked);
                tokio::spawn(pump(server_in, client_out, line, Towards::Client));
            }
        });
        proxy
    }

    /// How to connect through it.
    pub fn options(&self, db: &Db) -> PgConnectOptions {
        let options = (*db.pg().connect_options()).clone();
        options.host("127.0.0.1").port(self.address.port()).application_name("engine")
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, url: &str) {
        let options: PgConnectOptions = url.parse().unwrap();
        *self.server.lock().unwrap() = address(&options);
    }

    /// Has the server read something else, as long, instead of this.
    pub fn rewrite(&self, sent: &'static str, read: &'static str) {
        assert_eq!(sent.len(), read.len());
        *self.left.instead.lock().unwrap() = Some([sent.as_bytes(), read.as_bytes()]);
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// How many connections there were on which somebody listened.
    pub fn listeners(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.listens.load(Ordering::SeqCst)).count()
    }

    /// Freezes the connections on which somebody listens.
    pub fn freeze_listeners(&self) {
        self.end(Fate::Frozen, Line::listens);
    }

    /// Closes them as a server does that ends, though it reads on.
    pub fn half_close_listeners(&self) {
        self.end(Fate::HalfClosed, Line::listens);
    }

    /// Resets them, as a router does that has forgotten them.
    pub fn reset_listeners(&self) {
        self.end(Fate::Reset, Line::listens);
    }

    /// Closes every connection that there is now in that way.
    pub fn half_close_all(&self) {
        self.end(Fate::HalfClosed, |_| true);
    }

    /// Resets every connection that there is now.
    pub fn reset_all(&self) {
        self.end(Fate::Reset, |_| true);
    }

    /// Lets the next commit through to the server, and nothing come back of it.
    pub fn cut_at_commit(&self) {
        self.left.cuts.store(1, Ordering::SeqCst);
    }

    /// True once it was.
    pub fn has_cut(&self) -> bool {
        self.left.cuts.load(Ordering::SeqCst) == 0
    }

    /// Closes the connection on which the next commit comes, instead of letting it through.
    pub fn lose_a_commit(&self) {
        self.left.losses.store(1, Ordering::SeqCst);
    }

    /// True once it has.
    pub fn has_lost_it(&self) -> bool {
        self.left.losses.load(Ordering::SeqCst) == 0
    }

    /// Freezes the connection on which the next commit comes, before that gets through.
    pub fn freeze_at_commit(&self) {
        self.left.freezes.store(1, Ordering::SeqCst);
    }

    /// Freezes the next connections that are asked for a sign of life, so many of them.
    pub fn freeze_at_pings(&self, connections: usize) {
        self.left.pings.store(connections, Ordering::SeqCst);
    }

    /// How many of them are left.
    pub fn pings_left(&self) -> usize {
        self.left.pings.load(Ordering::SeqCst)
    }

    /// Freezes connections on which the server has sent more than so many bytes.
    pub fn freeze_after(&self, bytes: usize) {
        self.left.long.store(bytes, Ordering::SeqCst);
    }

    /// How many of the connections are frozen.
    pub fn frozen(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| *line.fate.borrow() == Fate::Frozen).count()
    }

    /// Freezes every connection there is now.
    pub fn freeze_all(&self) {
        self.end(Fate::Frozen, |_| true);
    }

    /// Freezes every connection, those that are still to come as well.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
        self.freeze_all();
    }

    /// New connections live again.
    pub fn hang_no_more(&self) {
        self.hangs.store(false, Ordering::SeqCst);
    }

    fn end(&self, fate: Fate, which: impl Fn(&Line) -> bool) {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| which(line)).for_each(|line| {
            line.fate.send_replace(fate);
        });
    }
}

impl Line {
    fn listens(&self) -> bool {
        self.listens.load(Ordering::SeqCst)
    }
}

fn address(options: &PgConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Server,
    Client,
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: Arc<Line>, way: Towards) {
    let mut bytes = vec![0; 64 * 1024];
    let mut fate = line.fate.subscribe();
    loop {
        let ended = async { fate.wait_for(|fate| *fate != Fate::Lives).await.map(|fate| *fate) };
        let count = tokio::select! {
            biased;
            ended = ended => match ended {
                Ok(fate) => return end(fate, &from, to, way).await,
                Err(_) => return,
            },
            read = from.read(&mut bytes) => match read {
                Ok(count @ 1..) => count,
                _ => return,
            },
        };
        if way == Towards::Server
            && let Some([sent, read]) = *line.left.instead.lock().unwrap()
            && let Some(at) = bytes[..count].windows(sent.len()).position(|it| it == sent)
        {
            bytes[at..at + sent.len()].copy_from_slice(read);
        }
        let some = &bytes[..count];
        if some.windows(8).any(|word| word == b"LISTEN \"") {
            line.listens.store(true, Ordering::SeqCst);
        }
        if line.cut.load(Ordering::SeqCst) {
            // The answer: whoever reads finds the connection closed.
            return;
        }
        let took = |left: &AtomicUsize| {
            let one_less = |left: usize| left.checked_sub(1);
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        };
        if way == Towards::Server && some == PING && took(&line.left.pings) {
            line.fate.send_replace(Fate::Frozen);
            continue;
        }
        if way == Towards::Client {
            let sent = line.sent.fetch_add(count, Ordering::SeqCst) + count;
            let most = line.left.long.load(Ordering::SeqCst);
            if most > 0 && sent > most {
                line.fate.send_replace(Fate::Frozen);
                continue;
            }
        }
        if some.windows(7).any(|word| word == b"COMMIT\0") {
            if took(&line.left.losses) {
                return;
            }
            if took(&line.left.freezes) {
                line.fate.send_replace(Fate::Frozen);
                continue;
            }
            line.cut.store(took(&line.left.cuts), Ordering::SeqCst);
        }
        if to.write_all(some).await.is_err() {
            return;
        }
    }
}

async fn end(fate: Fate, from: &OwnedReadHalf, mut to: OwnedWriteHalf, way: Towards) {
    if fate == Fate::Reset {
        let client = if way == Towards::Client { to.as_ref() } else { from.as_ref() };
        let _ = client.set_zero_linger();
        if way == Towards::Client {
            // Dropped, it would say that nothing more comes, before the reset.
            to.forget();
        }
        return;
    }
    if fate == Fate::HalfClosed && way == Towards::Client {
        let _ = to.shutdown().await;
    }
    // Both sockets stay open for as long as the test runs.
    std::future::pending::<()>().await;
}
