//! Publishes one number to a queue of a SQLite file, as another process would:
//! `publish_one URL QUEUE NUMBER`.

use std::env::args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let [url, queue, number]: [String; 3] = args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| anyhow::anyhow!("three words"))?;
    let pool = outbox::sqlite::connect(&url).await?;
    let mut tx = outbox::sqlite::begin(&pool).await?;
    outbox::publish(&mut tx, &queue, &number.parse::<i64>()?).await?;
    tx.commit().await?;
    pool.close().await;
    Ok(())
}
