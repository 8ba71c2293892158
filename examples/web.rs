//! A web service: an order and its message commit together, handlers run beside the requests,
//! and a stop cuts off neither.

use std::future::IntoFuture;

use axum::extract::{Path, State}; // a handler of messages takes `outbox::State`
use axum::{Router, http::StatusCode, routing::post};
use outbox::prelude::*;
use sqlx::SqlitePool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

mod support;

#[subscriber("orders")]
async fn pack(amount: i64) {
    println!("packed: {amount} cookies");
}

async fn order(State(pool): State<SqlitePool>, Path(amount): Path<i64>) -> (StatusCode, String) {
    match place(&pool, amount).await {
        Ok(id) => (StatusCode::CREATED, format!("order {id}")),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn place(pool: &SqlitePool, amount: i64) -> anyhow::Result<i64> {
    let mut tx = outbox::sqlite::begin(pool).await?; // on PostgreSQL: pool.begin()
    let insert = sqlx::query_scalar("INSERT INTO orders (amount) VALUES ($1) RETURNING id");
    let id = insert.bind(amount).fetch_one(&mut *tx).await?;
    outbox::publish(&mut tx, "orders", &amount).await?;
    tx.commit().await?;
    Ok(id)
}

/// A customer.
async fn buy(port: u16, amount: i64) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request =
        format!("POST /orders/{amount} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().last().unwrap_or_default().to_owned())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
        .execute(&pool)
        .await?;
    let app = App::sqlite(pool.clone());
    let routes = Router::new().route("/orders/{amount}", post(order)).with_state(pool.clone());
    let routes = routes.merge(outbox::health::router(app.health())); // `/live` and `/ready`

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let (stop, stopped) = oneshot::channel::<()>();
    let server =
        axum::serve(listener, routes).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());

    // A service says `app.run()` here, which drains on SIGTERM; requests go on meanwhile.
    app.run_until(async {
        let answer = buy(port, 7).await;
        support::no_message_left(&pool).await;
        println!("answered: {}", answer.unwrap_or_else(|error| error.to_string()));
    })
    .await?;
    let _ = stop.send(());
    server.await??;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
