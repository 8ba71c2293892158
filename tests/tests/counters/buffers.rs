//! How many pages of eight KiB a claim reads, whatever there is in the table.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{Claim, PgStore, Position, Store, Taken, new_token};
use outbox_tests::db::Db;

use super::explain::{Plans, explained};

/// To find and lock ten rows: the index, the rows, and each of them once more. And again to
/// find them by their places and write them.
pub const FEW: u64 = 50;
/// Rows that another claim has locked: to try for one that is locked reads its page anew.
pub const LOCKED: u64 = 1_000;
/// As many as there are dead rows in the way, or nearly.
pub const MANY: u64 = 5_000;

/// Claims ten rows of `many`, by statements that are prepared and have run before. Says how
/// many pages it read to find and lock them, and how many more to write them.
pub async fn of_ten(
    db: &Db,
    plans: &Plans,
    after: Option<Position>,
    expected: bool,
) -> (Taken, [u64; 2]) {
    let options = explained((*db.pg().connect_options()).clone());
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
    let store = PgStore::new(&pool, db.names.clone());
    let ten = |queue, after| Claim { expected, ..ten(queue, after) };
    store.claim(&[ten("nothing", None)]).await.unwrap();
    plans.take();
    let taken = store.claim(&[ten("many", after)]).await.unwrap().remove(0);
    assert_eq!(taken.rows.len(), 10);
    let claims: Vec<_> =
        plans.take().into_iter().filter(|plan| plan.name().contains("Leases due rows")).collect();
    let [claim] = &claims[..] else { panic!("{} claims", claims.len()) };
    let read = claim.buffers(if expected { "CTE locked" } else { "CTE due" });
    // The short one looks ahead besides.
    let written = if expected { claim.all_buffers() - read } else { claim.buffers("CTE taken") };
    assert!(read > 0 && written > 0, "{:#}", claim.root);
    println!("{read} pages to find and lock ten rows, {written} to write them");
    store.close().await;
    (taken, [read, written])
}

fn ten(queue: &str, after: Option<Position>) -> Claim {
    Claim {
        queues: Arc::from([queue.to_owned()]),
        limit: 10,
        lease_ttl: Duration::from_secs(600),
        token: new_token(),
        after,
        max_deliveries: None,
        expected: false,
    }
}

/// Ten rows more, due now.
pub async fn ten_more(db: &Db) {
    db.exec(
        "INSERT INTO million (queue, payload, next_attempt_at)
         SELECT 'many', '\\x37', clock_timestamp() FROM generate_series(1, 10)",
    )
    .await;
}
