//! A TCP proxy before a server, with weather: what crosses it can be held back, slowed
//! down, or cut off. Unlike `outbox_tests::proxy` it gets better again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// The worse one is the greater one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flow {
    #[default]
    Open,
    /// Each piece is this much late.
    Late(Duration),
    /// Byte by byte.
    Drips,
    /// Nothing arrives until it is open again; then all of it does.
    Held,
}

/// How connections end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Reset,
    /// The client sees the end of what the server says, and may go on talking.
    Fin,
    /// What the server answers next is lost with the connection.
    Answer,
}

#[derive(Clone, Copy, Default)]
pub struct Weather {
    /// To the server, and from it.
    pub up: Flow,
    pub down: Flow,
    pub end: Option<End>,
}

/// What several faults make together, each with its number: all that any of them does.
#[derive(Clone, Default)]
struct Sky(Vec<(u64, Weather)>);

impl Sky {
    fn flow(&self, way: Way) -> Flow {
        let of = |weather: &Weather| if way == Way::Up { weather.up } else { weather.down };
        self.0.iter().map(|(_, weather)| of(weather)).max().unwrap_or_default()
    }

    fn ends(&self, end: End) -> bool {
        self.0.iter().any(|(_, weather)| weather.end == Some(end))
    }
}

pub struct Net {
    pub address: SocketAddr,
    sky: watch::Sender<Sky>,
    faults: AtomicU64,
}

impl Net {
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let sky = watch::Sender::new(Sky::default());
        let seen = sky.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                tokio::spawn(carry(client, server, seen.subscribe()));
            }
        });
        Ok(Self { address, sky, faults: AtomicU64::new(0) })
    }

    /// Beside whatever weather there is, until it is ended by this number.
    pub fn begin(&self, change: impl FnOnce(&mut Weather)) -> u64 {
        let mut weather = Weather::default();
        change(&mut weather);
        let number = self.faults.fetch_add(1, Ordering::SeqCst);
        self.sky.send_modify(|sky| sky.0.push((number, weather)));
        number
    }

    pub fn end(&self, number: u64) {
        self.sky.send_modify(|sky| sky.0.retain(|(other, _)| *other != number));
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, sky: watch::Receiver<Sky>) {
    let mut seen = sky.clone();
    let reset = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        tokio::select! {
            () = pump(client_in, server_out, sky.clone(), Way::Up) => false,
            () = pump(server_in, client_out, sky, Way::Down) => false,
            _ = seen.wait_for(|sky| sky.ends(End::Reset)) => true,
        }
    };
    if reset {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Returns when the connection is over.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut sky: watch::Receiver<Sky>,
    way: Way,
) {
    let mut bytes = vec![0; 64 * 1024];
    let mut silent = false;
    loop {
        let count = tokio::select! {
            read = from.read(&mut bytes) => match read {
                Ok(count @ 1..) => count,
                _ => return,
            },
            _ = fin(&mut sky, way), if !silent => {
                silent = true;
                let _ = to.shutdown().await;
                continue;
            }
        };
        let opened = sky.wait_for(|sky| sky.flow(way) != Flow::Held).await;
        let Ok((flow, loses)) = opened.map(|sky| (sky.flow(way), sky.ends(End::Answer))) else {
            return;
        };
        if silent {
            continue;
        }
        if way == Way::Down && loses {
            return;
        }
        let sent = match flow {
            Flow::Drips => drip(&mut to, &bytes[..count], &mut sky, way).await,
            Flow::Late(late) => {
                sleep(late).await;
                to.write_all(&bytes[..count]).await
            }
            Flow::Open | Flow::Held => to.write_all(&bytes[..count]).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn fin(sky: &mut watch::Receiver<Sky>, way: Way) {
    let fin = |sky: &Sky| way == Way::Down && sky.ends(End::Fin);
    if sky.wait_for(fin).await.is_err() {
        std::future::pending().await
    }
}

/// Byte by byte, until it no longer drips.
async fn drip(
    to: &mut WriteHalf<'_>,
    bytes: &[u8],
    sky: &mut watch::Receiver<Sky>,
    way: Way,
) -> std::io::Result<()> {
    for (at, byte) in bytes.iter().enumerate() {
        if sky.borrow_and_update().flow(way) != Flow::Drips {
            return to.write_all(&bytes[at..]).await;
        }
        to.write_all(&[*byte]).await?;
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_one_fault_is_not_that_of_another() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let net = Net::before(server.local_addr().unwrap()).await.unwrap();
        let held = net.begin(|weather| weather.up = Flow::Held);
        let reset = net.begin(|weather| weather.end = Some(End::Reset));
        let late = net.begin(|weather| weather.up = Flow::Late(Duration::ZERO));
        net.end(reset);
        let mut client = TcpStream::connect(net.address).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        let second = Duration::from_secs(1);
        let arrives = tokio::time::timeout(second, far.read_u8()).await;
        assert!(arrives.is_err(), "it is held, and {arrives:?} arrived");
        net.end(late);
        net.end(held);
        assert_eq!(far.read_u8().await.unwrap(), b'x');
    }
}
