//! The connections of a pool, open and idle, for health checks.

use sqlx::{Database, Pool};

/// How many connections are open, and how many of them idle. A connection may be taken before sqlx
/// has counted it as idle, and sqlx's number of idle ones then wraps around below zero: that counts
/// as none.
pub(crate) fn counted<DB: Database>(pool: &Pool<DB>) -> (usize, usize) {
    let (open, idle) = (pool.size() as usize, pool.num_idle());
    (open, if idle > open { 0 } else { idle })
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::counted;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn there_are_never_fewer_idle_connections_than_none() {
        let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(2);
        let pool = pool.connect("sqlite::memory:").await.unwrap();
        let busy = pool.clone();
        let busy = tokio::spawn(async move {
            for _ in 0..20_000 {
                drop(busy.acquire().await.unwrap());
            }
        });
        let mut below = 0;
        while !busy.is_finished() {
            below += usize::from(pool.num_idle() > pool.size() as usize);
            let (open, idle) = counted(&pool);
            assert!(idle <= open && open <= 2, "{idle} of {open}");
            tokio::task::yield_now().await;
        }
        println!("{below} times sqlx said so");
        pool.close().await;
    }
}
