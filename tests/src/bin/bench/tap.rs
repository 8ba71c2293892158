//! A wire between an app and its server on which statements are counted. The server's
//! own counters count transactions, autovacuum's among them, and late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Closed when dropped; connections through it end by themselves.
pub struct Tap {
    /// To the same database, through the tap.
    pub options: PgConnectOptions,
    statements: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Tap {
    /// The server has to be reached by TCP.
    pub async fn on(options: &PgConnectOptions) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = (options.get_host().to_owned(), options.get_port());
        let statements = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&statements);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // It ends with an error when a side hangs up.
                tokio::spawn(pass(client, server.clone(), Arc::clone(&counted)));
            }
        });
        // What is encrypted cannot be counted.
        let options = options.clone().host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        Ok(Self { options, statements, accepting })
    }

    /// Since it is there.
    pub fn statements(&self) -> u64 {
        self.statements.load(Ordering::SeqCst)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(client: TcpStream, server: (String, u16), counted: Arc<AtomicU64>) -> Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    loop {
        let length = from_client.read(&mut buffer).await?;
        if length == 0 {
            break;
        }
        counted.fetch_add(frames.statements(&buffer[..length]), Ordering::SeqCst);
        to_server.write_all(&buffer[..length]).await?;
    }
    to_server.shutdown().await?;
    back.await??;
    Ok(())
}

/// Where in the stream of a client's messages we are: a letter, a length that counts
/// itself, the rest. The first message has no letter.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    rest: usize,
    begun: bool,
}

impl Frames {
    /// How many messages begin in these bytes that make the server run a statement:
    /// Execute and Query.
    fn statements(&mut self, mut bytes: &[u8]) -> u64 {
        let mut count = 0;
        while let Some((&first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            bytes = others;
            self.head.push(first);
            let letters = usize::from(self.begun);
            if let Ok(length) = <[u8; 4]>::try_from(self.head.get(letters..).unwrap_or_default()) {
                count += u64::from(self.begun && matches!(self.head[0], b'E' | b'Q'));
                self.rest = (u32::from_be_bytes(length) as usize).saturating_sub(4);
                self.begun = true;
                self.head.clear();
            }
        }
        count
    }
}
