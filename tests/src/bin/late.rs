//! A server on a network that is slow now and then: `late PORT MS` leads connections to that
//! port of this machine, and holds back one answer in four for up to so many milliseconds.
//! What a test takes to be known because the table shows it is not known yet. Prints its port.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const ONE_IN: u32 = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [port, most] = &arguments[..] else { anyhow::bail!("usage: late PORT MS") };
    let (port, most) = (port.parse::<u16>()?, most.parse::<u64>()?);
    let socket = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", socket.local_addr()?.port());
    loop {
        let (client, _) = socket.accept().await?;
        tokio::spawn(async move {
            let server = TcpStream::connect(("127.0.0.1", port)).await?;
            server.set_nodelay(true)?;
            client.set_nodelay(true)?;
            let ((mut asks, client), (server, mut asked)) =
                (client.into_split(), server.into_split());
            // Whoever hangs up first, the other is told.
            tokio::select! {
                ended = copy(&mut asks, &mut asked) => ended.map(drop),
                ended = answer(server, client, most) => ended,
            }
        });
    }
}

async fn answer(
    mut server: impl AsyncReadExt + Unpin,
    mut client: impl AsyncWriteExt + Unpin,
    most: u64,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = server.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        if fastrand::u32(0..ONE_IN) == 0 {
            sleep(Duration::from_micros(fastrand::u64(0..=most * 1000))).await;
        }
        client.write_all(&bytes[..count]).await?;
    }
}
