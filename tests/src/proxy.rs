//! A TCP proxy before PostgreSQL whose connections can be frozen: open, but no
//! byte arrives any more, as after a cable is pulled. Or cut off the moment a commit
//! is on its way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::db::Db;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    address: SocketAddr,
    lines: Arc<Mutex<Vec<Arc<Line>>>>,
    /// How many more connections are cut when they commit.
    cuts: Arc<AtomicUsize>,
    /// New connections are frozen too.
    hangs: Arc<AtomicBool>,
}

/// A connection through the proxy.
#[derive(Default)]
struct Line {
    listens: AtomicBool,
    frozen: AtomicBool,
    cut: AtomicBool,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    pub async fn before(db: &Db) -> Self {
        let options = db.pg().connect_options();
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: socket.local_addr().unwrap(),
            lines: Arc::default(),
            cuts: Arc::default(),
            hangs: Arc::default(),
        };
        let (lines, cuts) = (Arc::clone(&proxy.lines), Arc::clone(&proxy.cuts));
        let hangs = Arc::clone(&proxy.hangs);
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let line = Arc::new(Line { cuts: Arc::clone(&cuts), ..Line::default() });
                line.frozen.store(hangs.load(Ordering::SeqCst), Ordering::SeqCst);
                lines.lock().unwrap().push(Arc::clone(&line));
                let (client_in, client_out) = client.into_split();
                let (server_in, server_out) = server.into_split();
                tokio::spawn(pump(client_in, server_out, Arc::clone(&line)));
                tokio::spawn(pump(server_in, client_out, line));
            }
        });
        proxy
    }

    /// How to connect through it.
    pub fn options(&self, db: &Db) -> PgConnectOptions {
        let options = (*db.pg().connect_options()).clone();
        options.host("127.0.0.1").port(self.address.port()).application_name("engine")
    }

    /// How many connections there were on which somebody listened.
    pub fn listeners(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.listens.load(Ordering::SeqCst)).count()
    }

    /// Freezes the connections on which somebody listens.
    pub fn freeze_listeners(&self) {
        self.freeze(|line| line.listens.load(Ordering::SeqCst));
    }

    /// Lets the next commit through to the server, and nothing come back of it.
    pub fn cut_at_commit(&self) {
        self.cuts.store(1, Ordering::SeqCst);
    }

    /// True once it was.
    pub fn has_cut(&self) -> bool {
        self.cuts.load(Ordering::SeqCst) == 0
    }

    /// Freezes every connection there is now.
    pub fn freeze_all(&self) {
        self.freeze(|_| true);
    }

    /// Freezes every connection, those that are still to come as well.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
        self.freeze_all();
    }

    fn freeze(&self, which: impl Fn(&Line) -> bool) {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| which(line)).for_each(|line| {
            line.frozen.store(true, Ordering::SeqCst);
        });
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: Arc<Line>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let some = &bytes[..count];
        if some.windows(8).any(|word| word == b"LISTEN \"") {
            line.listens.store(true, Ordering::SeqCst);
        }
        if line.cut.load(Ordering::SeqCst) {
            // The answer: whoever reads finds the connection closed.
            return;
        }
        if some.windows(7).any(|word| word == b"COMMIT\0") {
            let one_less = |left: usize| left.checked_sub(1);
            let cut = line.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
            line.cut.store(cut.is_ok(), Ordering::SeqCst);
        }
        if line.frozen.load(Ordering::SeqCst) {
            // Both sockets stay open for as long as the test runs.
            std::future::pending::<()>().await;
        }
        if to.write_all(some).await.is_err() {
            return;
        }
    }
}
