//! A stop in the middle of trouble ends in time, and what it could not write comes back.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use outbox::{App, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{Probe, free, gated};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{begun, eventually, soon};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::{OFTEN, SECOND, publish};

on_postgres!(
    a_drain_whose_connections_were_reset_ends_in_time,
    a_drain_whose_connections_were_half_closed_ends_in_time,
    a_drain_behind_a_route_that_swallows_everything_ends_in_time,
    a_drain_whose_connections_were_killed_ends_in_time,
    a_drain_on_a_changed_database_ends_in_time,
);

const LIMIT: Duration = SECOND;
/// The drain's own time, what `drain` waits for beyond it, and a busy machine.
pub const IN_TIME: Duration = Duration::from_secs(1 + 3 * 5 + 12);

/// Stops `app` in the trouble that `begin` makes. Once `end` has ended that, all is handled.
pub async fn in_trouble(db: &Db, app: App, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) {
    let stopped = Stopped::in_trouble(db, app, begin).await;
    end().await;
    stopped.comes_back_on(db).await;
}

/// An app that was stopped while a handler ran and four rows waited.
pub struct Stopped {
    /// The number of the handler that had its end before the stop.
    finished: Option<i64>,
}

const QUEUE: &str = "stopped in trouble";

fn often((subscriber, probe): (Subscriber, Probe)) -> (Subscriber, Probe) {
    (subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN), probe)
}

impl Stopped {
    pub async fn in_trouble(db: &Db, app: App, begin: impl AsyncFnOnce()) -> Self {
        Self::amid(db, app, begin, async || ()).await
    }

    /// The handler ends when `trouble` is over, which begins after the stop.
    pub async fn amid(
        db: &Db,
        app: App,
        begin: impl AsyncFnOnce(),
        trouble: impl AsyncFnOnce(),
    ) -> Self {
        let (subscriber, probe) = often(gated("in trouble", QUEUE));
        publish(db, QUEUE, 0..5).await;
        // Rows that wait for a worker for two thirds of their lease are given back, and no others
        // are claimed for them. By then a busy machine is to have seen all of them claimed.
        let subscriber = subscriber.lease_ttl(12 * SECOND).max_workers(1);
        let app = app.only([subscriber]).drain_timeout(LIMIT);
        let running = app.start().await.unwrap();
        let first = probe.start().await.n;
        let claimed = of_queue("outbox", "AND acquired_token IS NOT NULL");
        eventually("all are claimed", async || db.int(&claimed).await == 5).await;
        begin().await;
        let at = Instant::now();
        let mut stop = pin!(running.stop());
        begun("the stop", stop.as_mut()).await;
        // Another has begun where its lease ran out before.
        let last = probe.more().await.last().map_or(first, |run| run.n);
        let trouble = async {
            trouble().await;
            probe.let_end(1);
        };
        // Whether it could write all of it depends on the trouble.
        let _ = tokio::join!(trouble, soon("the stop ends", stop));
        assert!(at.elapsed() < IN_TIME, "it took {:?}", at.elapsed());
        assert!(probe.more().await.is_empty(), "nothing is started by a drain");
        Self { finished: (probe.finished() == 1).then_some(last) }
    }

    /// An app beside it handles what is left, which is at least what was not started.
    pub async fn comes_back_on(self, db: &Db) {
        let (subscriber, probe) = often(free("after it", QUEUE));
        let running = db.app().only([subscriber]).start().await.unwrap();
        let rows = of_queue("outbox", "");
        eventually("no row is left", async || db.int(&rows).await == 0).await;
        running.stop().await.unwrap();
        let handled: BTreeSet<i64> = probe.more().await.iter().map(|run| run.n).collect();
        let left: BTreeSet<i64> = (0..5).filter(|n| Some(*n) != self.finished).collect();
        assert!(handled.is_superset(&left), "{handled:?}");
        assert_eq!(db.int(of_queue("outbox_dlq", "")).await, 0);
    }
}

/// Others may use the same tables.
fn of_queue(table: &str, which: &str) -> String {
    format!("SELECT count(*) FROM {table} WHERE queue = '{QUEUE}' {which}")
}

async fn behind_a_proxy(db: &Db, begin: impl AsyncFnOnce(&Proxy), end: impl AsyncFnOnce(&Proxy)) {
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone());
    in_trouble(db, app, async || begin(&proxy).await, async || end(&proxy).await).await;
}

async fn a_drain_whose_connections_were_reset_ends_in_time(db: &Db) {
    behind_a_proxy(db, async |proxy| proxy.reset_all(), async |_| ()).await;
}

async fn a_drain_whose_connections_were_half_closed_ends_in_time(db: &Db) {
    behind_a_proxy(db, async |proxy| proxy.half_close_all(), async |_| ()).await;
}

async fn a_drain_behind_a_route_that_swallows_everything_ends_in_time(db: &Db) {
    behind_a_proxy(db, async |proxy| proxy.hang(), async |proxy| proxy.hang_no_more()).await;
}

const KILL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'engine'";

async fn a_drain_whose_connections_were_killed_ends_in_time(db: &Db) {
    let begin = async || {
        for _ in 0..3 {
            db.int(KILL).await;
        }
    };
    in_trouble(db, db.app(), begin, async || ()).await;
}

const WRITTEN: &str = "CREATE TABLE written (in_loops boolean);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        INSERT INTO written SELECT current_setting('enable_hashjoin') = 'off'
            AND current_setting('enable_mergejoin') = 'off'
            WHERE current_setting('application_name') = 'engine';
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER UPDATE OR DELETE ON outbox
        FOR EACH STATEMENT EXECUTE FUNCTION note()";

/// With other defaults, plans that are nested loops, and another column. Open sessions keep
/// their settings, so they are ended; a trigger notes what each write was planned with.
async fn a_drain_on_a_changed_database_ends_in_time(db: &Db) {
    let name = db.pg().connect_options().get_database().unwrap().to_owned();
    let written = async |how: &str| {
        db.int(format!("SELECT count(*) FROM written WHERE {how} in_loops")).await
    };
    let mut before = 0;
    let begin = async || {
        for set in [
            "default_transaction_isolation = serializable",
            "enable_hashjoin = off",
            "enable_mergejoin = off",
            "enable_indexscan = off",
        ] {
            db.exec(format!("ALTER DATABASE {name} SET {set}")).await;
        }
        db.exec("ALTER TABLE outbox ADD COLUMN more text DEFAULT 'x'").await;
        db.exec("ALTER TABLE outbox_dlq ADD COLUMN more text DEFAULT 'x'").await;
        db.exec("CREATE TABLE changed AS SELECT clock_timestamp() AS at").await;
        let kill_old = format!("{KILL} AND backend_start < (SELECT at FROM changed)");
        eventually("no old session is left", async || db.int(&kill_old).await == 0).await;
        sqlx::raw_sql(WRITTEN).execute(db.pg()).await.unwrap();
        eventually("a new one writes", async || written("").await > 0).await;
        before = written("").await;
    };
    let stopped = Stopped::in_trouble(db, db.app(), begin).await;
    assert!(written("").await > before, "the drain wrote nothing");
    assert_eq!(written("NOT").await, 0, "an old session wrote");
    stopped.comes_back_on(db).await;
}
