//! A process that is stopped, or whose machine is gone, while the rows of a claim are on
//! their way to it: the server has locked them, and has no end of sending them.

use bytes::Bytes;
use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{free, gated};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{PATIENCE, eventually, eventually_within};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::SECOND;

on_postgres!(rows_that_nobody_takes_out_of_a_claim_s_answer_come_back);

/// More than all the buffers on the way, and one claim.
const ROWS: i64 = 300;
const BYTES: usize = 80 << 10;

async fn rows_that_nobody_takes_out_of_a_claim_s_answer_come_back(db: &Db) {
    // A number, and blanks.
    let mut payload = vec![b' '; BYTES];
    payload[0] = b'7';
    let payload = Bytes::from(payload);
    db.send_all((0..ROWS).map(|_| Outgoing::raw("q", payload.clone()))).await;
    let proxy = Proxy::before(db).await;
    proxy.freeze_after(BYTES);
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let (all, _) = gated("gone", "q");
    let all = all.max_workers(1000).fetch_batch(1000).lease_ttl(5 * SECOND);
    let gone = App::postgres(pool).names(db.names.clone()).only([all]);
    let gone = gone.drain_timeout(SECOND).start().await.unwrap();
    eventually("it claims", async || proxy.frozen() > 0).await;
    // Nothing else comes of it, either.
    proxy.hang();
    let begun = Instant::now();
    assert_eq!((db.rows().await, db.leased().await), (ROWS, 0), "no lease has begun");
    let (heir, probe) = free("heir", "q");
    let heir = heir.lease_ttl(5 * SECOND).max_poll(SECOND);
    let running = db.app().only([heir]).start().await.unwrap();
    eventually_within(2 * PATIENCE, "they come back", async || db.rows().await == 0).await;
    println!("after {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(probe.finished(), usize::try_from(ROWS).unwrap());
    running.stop().await.unwrap();
    drop(gone);
}
