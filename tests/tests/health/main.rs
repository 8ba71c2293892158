//! Whether an app is alive and ready, as probes see it.

mod hang;
mod loops;
mod probes;
mod runtimes;

use std::time::Duration;

use axum::Router;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The probes of an app, served on a port of their own.
struct Probes(std::net::SocketAddr);

impl Probes {
    async fn of(health: outbox::health::Health) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router: Router = outbox::health::router(health);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self(address)
    }

    /// Status and body.
    async fn get(&self, route: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let request = format!("GET {route} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    async fn live(&self) -> u16 {
        self.get("/live").await.0
    }

    async fn ready(&self) -> u16 {
        self.get("/ready").await.0
    }
}

/// Longer than a check takes on a machine that is busy with other things, shorter than a
/// statement is waited for.
const SOON: Duration = Duration::from_secs(20);
