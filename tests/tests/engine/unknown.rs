//! A commit whose answer was lost may have happened: no success, and no failure
//! that is written beside it.

use outbox::retry::{Constant, NoRetry};
use outbox::{App, Context, FromContext, Subscriber, Tx};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_postgres};
use sqlx::postgres::PgPoolOptions;

use super::{HOUR, SECOND};
use outbox_tests::proxy::Proxy;

on_postgres!(a_commit_without_an_answer_is_told_as_unknown_and_not_settled_twice);

async fn book(ctx: Context) -> Result<(), outbox::HandlerError> {
    let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
    let n: i64 = ctx.decode()?;
    sqlx::query("INSERT INTO done VALUES ($1)").bind(n).execute(&mut *tx).await?;
    outbox::publish(&mut tx, "receipts", &n).await?;
    Ok(())
}

async fn a_commit_without_an_answer_is_told_as_unknown_and_not_settled_twice(db: &Db) {
    capture::start();
    db.exec("CREATE TABLE done (n bigint NOT NULL)").await;
    for retried in [false, true] {
        let queue = outbox_tests::backend::unique("unknown");
        let booking = Subscriber::new("booking", &*queue, book).lease_ttl(60 * SECOND);
        let booking =
            if retried { booking.retry(Constant::new(HOUR)) } else { booking.retry(NoRetry) };
        let proxy = Proxy::before(db).await;
        let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
        let app = App::postgres(pool).names(db.names.clone()).only([booking]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        proxy.cut_at_commit();
        db.publish(&queue, 7).await;
        eventually("it is over", async || stats.subscribers()[0].lease_lost == 1).await;
        running.stop().await.unwrap();
        assert!(proxy.has_cut());
        let one = stats.subscribers().remove(0);
        assert_eq!((one.dispatched, one.acked, one.retried, one.terminal()), (1, 0, 0, 0));
        let events = capture::events(&queue);
        let lost = events.iter().find(|line| line.event() == Some("lease_lost")).unwrap();
        assert_eq!(lost.get("unknown"), Some("true"));
        assert!(lost.get("message").unwrap().contains("no answer"), "{}", lost.text());
        let receipts = "SELECT count(*) FROM outbox WHERE queue = 'receipts'";
        assert_eq!((db.int("SELECT count(*) FROM done").await, db.int(receipts).await), (1, 1));
        assert_eq!((db.rows().await, db.letters().await), (1, 0), "neither retried nor dead");
        db.exec("DELETE FROM outbox").await;
        db.exec("DELETE FROM done").await;
    }
}
