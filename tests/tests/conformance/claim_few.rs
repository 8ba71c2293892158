//! PostgreSQL has two shorter statements for a claim of one queue: for one that expects few
//! rows, and for one that expects as many as it asks for. They take the rows that the other
//! one would take; the first says the same of what is to come, or leaves all to that one; the
//! second says to ask again.

use std::time::{Duration, UNIX_EPOCH};

use fastrand::Rng;
use outbox::testing::store::{Before, Claim, Expects, FEW, Position, Store as _, Taken};

use crate::bench::{Bench, Postgres, SqlBench, Steps, TTL};

/// One of each kind that a claim tells apart.
const DUE: [&str; 7] = [
    "- '1 hour'",
    "- '1 hour'",
    "- '2 hours'",
    "- '1 minute'",
    "+ '1 hour'",
    "+ '1 day'",
    "infinity",
];
/// The last one has run out.
const LEASE: [&str; 4] = ["NULL", "NULL", "- '1 minute'", "- '1 hour'"];
/// Behind such a payload, or such headers, a claim ends.
const LARGE: usize = 33 << 20;

/// The bytes of the payload and of the headers of the first row, which is due for long.
type Large = Option<(usize, usize)>;

async fn fill(b: &Postgres, rng: &mut Rng, large: Large, leases: &[&'static str]) {
    b.execute("TRUNCATE outbox; TRUNCATE outbox_paused").await;
    for (n, queue) in ["q", "q", "q", "q", "q", "q", "q", "q", "other"].into_iter().enumerate() {
        let large = large.filter(|_| n == 0);
        if rng.u8(..4) == 0 && large.is_none() {
            continue;
        }
        let (due, lease) = if large.is_some() {
            ("- '1 day'", "NULL")
        } else {
            (rng.choice(DUE).unwrap(), rng.choice(leases.iter().copied()).unwrap())
        };
        let (payload, headers) = large.unwrap_or((10, 10));
        let alone = if rng.bool() { "8" } else { "4" };
        let token = format!("'00000000-0000-{alone}000-8000-{:012x}'", rng.u32(..));
        let (token, at) = match lease {
            "NULL" => ("NULL".to_owned(), "NULL".to_owned()),
            ago => (token, format!("clock_timestamp() {ago}::interval")),
        };
        // Times of whole minutes, so that some are the same.
        let due = match due {
            "infinity" => "'infinity'".to_owned(),
            from_now => format!("date_trunc('minute', clock_timestamp() {from_now}::interval)"),
        };
        b.execute(&format!(
            "INSERT INTO outbox (queue, payload, headers, created_at, next_attempt_at, acquired_token, acquired_at)
            VALUES ('{queue}', convert_to(repeat('x', {payload}), 'UTF8'),
                jsonb_build_object('filled', repeat('x', {headers})), clock_timestamp(), {due},
                {token}, {at})"
        ))
        .await;
    }
    if rng.u8(..8) == 0 {
        b.execute("INSERT INTO outbox_paused (queue) VALUES ('q')").await;
    }
}

/// What it took, and what it knows of how their last deliveries ended.
fn told(taken: &Taken) -> Vec<(i64, Before)> {
    taken.rows.iter().map(|claimed| (claimed.row.id, claimed.before)).collect()
}

/// Whether they wait for the same: they were made one after the other, and what they may
/// wait for lies minutes apart.
fn wait_alike(one: &Taken, many: &Taken) -> bool {
    match (one.next, many.next) {
        (Some(one), Some(many)) => {
            one.is_zero() == many.is_zero() && one.abs_diff(many) < Duration::from_secs(30)
        }
        (one, many) => one == many,
    }
}

async fn the_claims_of_one_queue_take_what_the_claim_of_many_does(b: Postgres) {
    let mut rng = Rng::with_seed(7);
    let (mut rows, mut waits, mut cut, mut left, mut all_full) = (0, 0, 0, 0, 0);
    for round in 0..100 {
        let large = match round % 20 {
            0 => Some((LARGE, 10)),
            10 => Some((10, LARGE)),
            _ => None,
        };
        // What has run out is never for the one that expects few.
        let leases = if round % 3 == 0 { &LEASE[..] } else { &LEASE[..3] };
        fill(&b, &mut rng, large, leases).await;
        b.execute("CREATE TABLE IF NOT EXISTS kept (LIKE outbox); TRUNCATE kept").await;
        b.execute("INSERT INTO kept SELECT * FROM outbox").await;
        let hour_ago =
            "extract(epoch FROM date_trunc('minute', clock_timestamp() - '1 hour'::interval))";
        let hour_ago = b.number(&format!("SELECT ({hour_ago} * 1000000)::bigint")).await;
        let id = b.number("SELECT coalesce(max(id), 0) FROM outbox").await - rng.i64(..8);
        let due = UNIX_EPOCH + Duration::from_micros(hour_ago.unsigned_abs());
        let after = (large.is_none() && rng.bool()).then_some(Position { due, id });
        let limit = rng.usize(..9);
        let claim = Claim { after, ..b.claim_of(&["q"], limit) };
        let again = "TRUNCATE outbox; INSERT INTO outbox SELECT * FROM kept";
        let one = b.taken(&claim).await;
        b.execute(again).await;
        let full = b.taken(&Claim { expects: Expects::Plenty, ..claim.clone() }).await;
        b.execute(again).await;
        let many = b.store().claim(&[claim.clone(), b.claim_of(&["nobody's"], 1)]).await;
        let many = many.unwrap().swap_remove(0);
        assert_eq!(told(&one), told(&many), "round {round}: {claim:?}");
        let waits_of = (one.next, many.next);
        assert!(wait_alike(&one, &many), "round {round}: {claim:?}: {waits_of:?}");
        if large.is_some() {
            // Of more bytes than one claim may have it takes none.
            assert!(full.rows.is_empty() || told(&full) == told(&many), "round {round}: {claim:?}");
            left += usize::from(full.rows.is_empty() && !many.rows.is_empty());
        } else {
            assert_eq!(told(&full), told(&many), "round {round}: {claim:?}");
        }
        let asks_again = limit > 0 && full.rows.len() < limit;
        assert!(limit == 0 || full.next == asks_again.then_some(Duration::ZERO), "round {round}");
        all_full += usize::from(limit > 0 && full.rows.len() == limit);
        for (others, last) in [(&one, &full), (&full, &many)] {
            for (one, other) in others.rows.iter().zip(&last.rows) {
                let mut same = other.row.clone();
                same.acquired_at = one.row.acquired_at;
                assert_eq!(format!("{:?}", one.row), format!("{same:?}"));
                assert!(one.row.acquired_at < other.row.acquired_at, "a lease of its own");
            }
        }
        rows += one.rows.len();
        waits += usize::from(one.next.is_some());
        cut += usize::from(one.next == Some(Duration::ZERO) && !one.rows.is_empty());
    }
    assert!(rows > 80 && waits > 40 && cut > 1, "{rows} rows, {waits} waits, {cut} cut");
    assert!(left > 1 && all_full > 10, "{left} left, {all_full} full");
    const { assert!(TTL.as_secs() > 60 && TTL.as_secs() < 3600, "of the leases one holds") };
}

/// Whoever expects few has not looked so far.
async fn what_lies_behind_a_hundred_rows_in_flight_is_taken_all_the_same(b: Postgres) {
    let ids = b.put_many("q", FEW + 3).await;
    let in_flight = b.claim(&["q"], FEW).await;
    assert_eq!(in_flight.len(), FEW);
    let [large, old, plain] = ids[FEW..] else { panic!("{} rows", ids.len()) };
    let bytes = format!("payload = convert_to(repeat('x', {LARGE}), 'UTF8') WHERE id = {large}");
    b.execute(&format!("UPDATE outbox SET {bytes}")).await;
    let lease =
        "acquired_token = gen_random_uuid(), acquired_at = clock_timestamp() - '1 hour'::interval";
    b.execute(&format!("UPDATE outbox SET {lease} WHERE id = {old}")).await;
    for left in
        [vec![(large, Before::Settled)], vec![(old, Before::Expired), (plain, Before::Settled)]]
    {
        let few = b.taken(&Claim { expects: Expects::Few, ..b.claim_of(&["q"], FEW) }).await;
        assert_eq!(told(&few), left);
    }
}

cases! {
    postgres only, "the others have one statement":
    the_claims_of_one_queue_take_what_the_claim_of_many_does,
    what_lies_behind_a_hundred_rows_in_flight_is_taken_all_the_same,
}
