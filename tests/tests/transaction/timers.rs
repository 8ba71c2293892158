//! A handler that sets the timer again on which it runs.

use outbox::{Context, FromContext, HandlerError, Outgoing, PublishError, Subscriber, Tx};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;

use super::*;

on_both!(a_timer_is_set_again_with_the_ack_and_not_through_its_own_transaction);

fn tick() -> Outgoing {
    Outgoing::new("tick", &7).timer_id("tick").delay(60 * SECOND)
}

macro_rules! handler {
    ($name:ident, $database:ty) => {
        async fn $name(ctx: Context) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let publisher = ctx.publisher();
            let one = publisher.send(&mut tx, tick()).await.unwrap_err();
            let batch = publisher.publish_batch(&mut tx, [tick()]).await.unwrap_err();
            for refused in [one, batch] {
                assert!(matches!(refused, PublishError::OwnTimer { .. }), "{refused}");
            }
            // Of another queue, it is another timer.
            publisher.send(&mut tx, Outgoing::new("tock", &7).timer_id("tick")).await?;
            Ok(publisher.collect(tick())?)
        }
    };
}

handler!(on_postgres, sqlx::Postgres);
handler!(on_sqlite, sqlx::Sqlite);

async fn a_timer_is_set_again_with_the_ack_and_not_through_its_own_transaction(db: &Db) {
    let subscriber = if db.is_postgres() {
        Subscriber::new("tick", "tick", on_postgres).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("tick", "tick", on_sqlite).requires::<Tx<sqlx::Sqlite>>()
    };
    let running = db.app().only([subscriber]).start().await.unwrap();
    let first = db.send(Outgoing::new("tick", &7).timer_id("tick")).await.id().unwrap();
    eventually("it is acked", async || {
        db.int(format!("SELECT count(*) FROM outbox WHERE id = {first}")).await == 0
    })
    .await;
    running.stop().await.unwrap();
    let set = async |queue: &str| {
        let set = "SELECT count(*) FROM outbox WHERE timer_id = 'tick' AND attempts_count = 0";
        db.int(format!("{set} AND queue = '{queue}'")).await
    };
    assert_eq!((set("tick").await, set("tock").await, db.letters().await), (1, 1, 0));
}
