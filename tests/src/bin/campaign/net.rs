//! A TCP proxy before a server, with weather: what crosses it can be held back, slowed
//! down, or cut off. Unlike `outbox_tests::proxy` it gets better again.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Flow {
    #[default]
    Open,
    /// Nothing arrives until it is open again; then all of it does.
    Held,
    /// Each piece is this much late.
    Late(Duration),
    /// Byte by byte.
    Drips,
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

pub struct Net {
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
}

impl Net {
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let weather = watch::Sender::new(Weather::default());
        let seen = weather.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = socket.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                tokio::spawn(carry(client, server, seen.subscribe()));
            }
        });
        Ok(Self { address, weather })
    }

    pub fn set(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }

    pub fn clear(&self) {
        self.weather.send_replace(Weather::default());
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, weather: watch::Receiver<Weather>) {
    let mut seen = weather.clone();
    let reset = {
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        tokio::select! {
            () = pump(client_in, server_out, weather.clone(), Way::Up) => false,
            () = pump(server_in, client_out, weather, Way::Down) => false,
            _ = seen.wait_for(|weather| weather.end == Some(End::Reset)) => true,
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
    mut weather: watch::Receiver<Weather>,
    way: Way,
) {
    let flow = |weather: &Weather| if way == Way::Up { weather.up } else { weather.down };
    let mut bytes = vec![0; 64 * 1024];
    let mut silent = false;
    loop {
        let count = tokio::select! {
            read = from.read(&mut bytes) => match read {
                Ok(count @ 1..) => count,
                _ => return,
            },
            _ = fin(&mut weather, way), if !silent => {
                silent = true;
                let _ = to.shutdown().await;
                continue;
            }
        };
        let opened = weather.wait_for(|weather| flow(weather) != Flow::Held).await;
        let Ok(now) = opened.map(|weather| *weather) else { return };
        if silent {
            continue;
        }
        if way == Way::Down && now.end == Some(End::Answer) {
            return;
        }
        let sent = match flow(&now) {
            Flow::Drips => drip(&mut to, &bytes[..count], &mut weather, flow).await,
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

async fn fin(weather: &mut watch::Receiver<Weather>, way: Way) {
    let fin = |weather: &Weather| way == Way::Down && weather.end == Some(End::Fin);
    if weather.wait_for(fin).await.is_err() {
        std::future::pending().await
    }
}

/// Byte by byte, until it no longer drips.
async fn drip(
    to: &mut WriteHalf<'_>,
    bytes: &[u8],
    weather: &mut watch::Receiver<Weather>,
    flow: impl Fn(&Weather) -> Flow,
) -> std::io::Result<()> {
    for (at, byte) in bytes.iter().enumerate() {
        if flow(&weather.borrow_and_update()) != Flow::Drips {
            return to.write_all(&bytes[at..]).await;
        }
        to.write_all(&[*byte]).await?;
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
