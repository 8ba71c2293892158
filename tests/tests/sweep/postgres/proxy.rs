//! A proxy before PostgreSQL that counts the messages of a flow, and does to one of
//! them what the fault says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox_tests::frames::{Frame, Frames};
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::fault::{Counts, Fault, Kind};
use super::what::{Line, What};

pub struct Proxy {
    address: SocketAddr,
    watch: Arc<Mutex<Watch>>,
}

/// What all connections share.
#[derive(Default)]
struct Watch {
    /// `None`: nothing is counted.
    what: Option<What>,
    fault: Option<Fault>,
    counts: Counts,
    struck: bool,
    lines: usize,
    /// The connection whose statement is counted.
    owner: Option<usize>,
    /// It was given up before that.
    is_early: bool,
}

enum Verdict {
    Pass,
    Cut,
    PassAndCut,
    Wait(Duration),
}

impl Proxy {
    pub async fn before(options: &PgConnectOptions) -> Self {
        let server = format!("{}:{}", options.get_host(), options.get_port());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: socket.local_addr().unwrap(), watch: Arc::default() };
        let watch = Arc::clone(&proxy.watch);
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(connection(client, server, Arc::clone(&watch)));
            }
        });
        proxy
    }

    /// How to connect through it.
    pub fn options(&self, options: &PgConnectOptions) -> PgConnectOptions {
        options.clone().host("127.0.0.1").port(self.address.port())
    }

    /// From now on these messages count, and the fault waits for its own.
    pub fn arm(&self, what: What, fault: Option<Fault>) {
        let mut watch = self.watch.lock().unwrap();
        (watch.what, watch.fault) = (Some(what), fault);
    }

    /// Counts no more.
    pub fn disarm(&self) {
        self.watch.lock().unwrap().what = None;
    }

    pub fn counts(&self) -> Counts {
        self.watch.lock().unwrap().counts
    }

    /// True once it counts no more: what was to be counted is over.
    pub fn is_done(&self) -> bool {
        self.watch.lock().unwrap().what.is_none()
    }

    /// True where the engine gave up the connection that is counted before the statement was over
    /// and the fault had happened, as on a machine that stands still.
    pub fn is_early(&self) -> bool {
        self.watch.lock().unwrap().is_early
    }

    /// True once the fault has happened.
    pub fn has_struck(&self) -> bool {
        self.watch.lock().unwrap().struck
    }
}

impl Watch {
    /// A message of the client.
    fn sent(&mut self, line: &mut Line, frame: &Frame) -> Verdict {
        line.prepares(frame);
        let Some(what) = self.what else { return Verdict::Pass };
        // A connection may end at any time by itself.
        if !line.sends(what, frame) || frame.kind == Some(b'X') || !self.is_of(line) {
            return Verdict::Pass;
        }
        self.counts.sent += 1;
        self.judge(what, true, self.counts.sent)
    }

    /// A message of the server.
    fn answered(&mut self, line: &mut Line, frame: &Frame) -> Verdict {
        let Some(what) = self.what else { return Verdict::Pass };
        // Notices and notifications come when they like.
        if matches!(frame.kind, Some(b'A' | b'N')) || !line.hears(what) || !self.is_of(line) {
            return Verdict::Pass;
        }
        self.counts.answered += 1;
        let verdict = self.judge(what, false, self.counts.answered);
        if line.is_done(what, frame) {
            self.what = None;
        }
        verdict
    }

    /// Only the first connection counts, where it is a statement that does.
    fn is_of(&mut self, line: &Line) -> bool {
        self.what == Some(What::All) || *self.owner.get_or_insert(line.number) == line.number
    }

    fn ends(&mut self, number: usize) {
        if self.owner == Some(number) && self.what.is_some() && !self.struck {
            (self.what, self.is_early) = (None, true);
        }
    }

    fn judge(&mut self, what: What, of_client: bool, at: usize) -> Verdict {
        let is_it = |fault: &mut Fault| fault.kind.is_of_client() == of_client && fault.at == at;
        let Some(fault) = self.fault.take_if(is_it) else { return Verdict::Pass };
        self.struck = true;
        match fault.kind {
            Kind::Before | Kind::Reply => Verdict::Cut,
            Kind::After => Verdict::PassAndCut,
            Kind::Freeze | Kind::Late => Verdict::Wait(what.freeze()),
        }
    }
}

async fn connection(mut client: TcpStream, mut server: TcpStream, watch: Arc<Mutex<Watch>>) {
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let number = {
        let mut watch = watch.lock().unwrap();
        watch.lines += 1;
        watch.lines
    };
    let line = Mutex::new(Line::new(number));
    let sent = |frame: &Frame| watch.lock().unwrap().sent(&mut line.lock().unwrap(), frame);
    let answered = |frame: &Frame| watch.lock().unwrap().answered(&mut line.lock().unwrap(), frame);
    let (client_in, client_out) = client.split();
    let (server_in, server_out) = server.split();
    tokio::select! {
        () = pump(client_in, server_out, Frames::of_client(), sent) => {}
        () = pump(server_in, client_out, Frames::of_server(), answered) => {}
    }
    watch.lock().unwrap().ends(number);
    drop(client);
    // Closed at once, with an answer unread, the connection would be reset, and the server
    // might not read what it was sent.
    let _ = server.shutdown().await;
    let _ = copy(&mut server, &mut sink()).await;
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut frames: Frames,
    judge: impl Fn(&Frame) -> Verdict,
) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let mut passed = Vec::new();
        for frame in frames.read(&bytes[..count]) {
            let verdict = judge(&frame);
            if !matches!(verdict, Verdict::Pass) {
                let _ = to.write_all(&passed).await;
                passed.clear();
            }
            match verdict {
                Verdict::Pass => {}
                Verdict::Cut => return,
                Verdict::PassAndCut => {
                    let _ = to.write_all(&frame.bytes).await;
                    return;
                }
                Verdict::Wait(time) => sleep(time).await,
            }
            passed.extend(frame.bytes);
        }
        if to.write_all(&passed).await.is_err() {
            return;
        }
    }
}
