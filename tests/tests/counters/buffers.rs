//! How many pages of eight KiB a claim reads, whatever there is in the table.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{Claim, Expects, PgStore, Position, Store, Taken, new_token};
use outbox_tests::db::Db;

use super::explain::{Plans, explained};

/// To find and lock ten rows: the index, the rows, and each of them once more. And again to
/// find them by their places and write them.
pub const FEW: u64 = 80;
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
    expects: Expects,
) -> (Taken, [u64; 2]) {
    let options = explained((*db.pg().connect_options()).clone());
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
    let store = PgStore::new(&pool, db.names.clone());
    let ten = |queue, after| Claim { expects, ..ten(queue, after) };
    // Where there are not few, it is done as if many were expected.
    for expects in [expects, Expects::Many] {
        store.claim(&[Claim { expects, ..ten("nothing", None) }]).await.unwrap();
    }
    plans.take();
    let taken = store.claim(&[ten("many", after)]).await.unwrap().remove(0);
    assert_eq!(taken.rows.len(), 10);
    let claims: Vec<_> =
        plans.take().into_iter().filter(|plan| plan.name().contains("Leases due rows")).collect();
    let (claim, vain) = claims.split_last().expect("a claim");
    for vain in vain {
        let pages = vain.all_buffers();
        assert!(
            expects == Expects::Few && pages <= FEW,
            "{pages} pages to see that there are more"
        );
    }
    let few = expects == Expects::Few && vain.is_empty();
    let locks = if few || expects == Expects::Plenty { "CTE locked" } else { "CTE due" };
    let read = claim.buffers(locks);
    // Those that expect less look ahead besides.
    let written = match expects {
        Expects::Plenty => claim.all_buffers() - read,
        _ => claim.buffers("CTE taken"),
    };
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
        expects: Expects::Few,
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
