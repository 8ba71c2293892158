//! The same handlers for both databases: one takes `Tx<Postgres>`, one
//! `Tx<Sqlite>`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Context, FromContext, HandlerError, Subscriber, Tx};
use outbox_tests::db::Db;
use tokio::sync::Notify;

/// What the handler does once it has written and published.
#[derive(Clone)]
pub enum Then {
    Return,
    Fail,
    Panic,
    /// Longer than any timeout here.
    Sleep,
    /// Tells the test that it has written, and waits for the test.
    Wait(Arc<Notify>, Arc<Notify>),
    /// Hands the transaction to somebody else.
    Keep(Kept),
    /// Takes a second one.
    Twice,
}

/// Where a handler puts what it keeps.
pub type Kept = Arc<Mutex<Vec<Box<dyn std::any::Any + Send>>>>;

macro_rules! handler {
    ($name:ident, $database:ty, $insert:literal) => {
        async fn $name(ctx: Context, then: Then) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let n: i64 = ctx.decode()?;
            sqlx::query($insert).bind(n).execute(&mut *tx).await?;
            outbox::publish(&mut tx, "receipts", &n).await?;
            match then {
                Then::Return => {}
                Then::Fail => return Err(HandlerError::new("told", "as told")),
                Then::Panic => panic!("as told"),
                Then::Sleep => tokio::time::sleep(Duration::from_secs(60)).await,
                Then::Wait(written, go) => {
                    written.notify_one();
                    go.notified().await;
                }
                Then::Keep(kept) => kept.lock().unwrap().push(Box::new(tx)),
                Then::Twice => drop(Tx::<$database>::from_context(&ctx).await?),
            }
            Ok(())
        }
    };
}

handler!(on_postgres, sqlx::Postgres, "INSERT INTO done (n) VALUES ($1)");
handler!(on_sqlite, sqlx::Sqlite, "INSERT INTO done (n) VALUES (?)");

/// A subscriber of the queue `q`.
pub fn subscriber(db: &Db, then: Then) -> Subscriber {
    named("book", db, then)
}

/// The same, for what is told of it alone.
pub fn named(name: &'static str, db: &Db, then: Then) -> Subscriber {
    if db.is_postgres() {
        Subscriber::new(name, "q", move |ctx| on_postgres(ctx, then.clone()))
            .requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new(name, "q", move |ctx| on_sqlite(ctx, then.clone()))
            .requires::<Tx<sqlx::Sqlite>>()
    }
}
