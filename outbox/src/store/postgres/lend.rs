//! Transactions that are lent to handlers, from the user's pool. What a handler writes, its ack and
//! what it publishes commit together. Such a connection has the user's settings, on which the
//! statements here cannot rely.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Executor as _, Postgres};
use tokio::time::timeout;

use super::CONNECT_LIMIT;
use super::runs::Runs;
use super::transaction::{Closing, is_open};
use crate::error::{StoreError, has_code, takes_no_writes};
use crate::extract::{Begun, Ended, Lender, Open, lends};
use crate::publish::sealed::On;
use crate::publish::{Prepared, Publisher, Tally, together};
use crate::store::{Handled, Lease};
use crate::unpoisoned::Locked as _;

/// Begins a transaction, whatever the database's defaults are. READ COMMITTED: the ack deletes a
/// row that the extension of its lease has changed since the handler's first statement, and would
/// fail under a snapshot of that statement. READ WRITE: each transaction ends with a write, and a
/// standby is to refuse it before the handler runs.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// As [`BEGIN`], and a session whose client has gone while it waits for a lock ends too: it would
/// keep its place on the server, and its own locks. This is one message, for PostgreSQL 14 and
/// newer. It uses `SET`, because after a query the handler's `SET TRANSACTION` would come too late.
const BEGIN_CHECKED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
    SET LOCAL client_connection_check_interval = '2s'";
/// The lock timeout of the engine's own sessions, for the end of a transaction.
const GIVES_WAY: &str = "SELECT set_config('lock_timeout', extract(epoch FROM half) * 1000 || 'ms', true)
    FROM (SELECT greatest('1ms', least('5s', current_setting('deadlock_timeout')::interval / 2)) AS half)
        AS patience
    WHERE current_setting('lock_timeout')::interval NOT BETWEEN '1ms' AND half";
/// How often a begin is tried: while some connections are looked at, others lead to the same
/// standby.
const TRIES: usize = 3;

/// The user's pool, from which transactions are lent.
pub struct PgLender {
    pool: PgPool,
    /// The server cannot watch its clients: it is too old, or its system has no way to ask.
    unchecked: AtomicBool,
}

impl PgLender {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, unchecked: AtomicBool::new(false) }
    }

    /// Begins a transaction where it can write. The row was claimed from a server that takes
    /// writes, so a connection to one that does not is stale.
    async fn begin(&self) -> Result<Closing<Postgres>, sqlx::Error> {
        let mut tried = 1;
        loop {
            let unchecked = self.unchecked.load(Ordering::Relaxed);
            let statement = if unchecked { BEGIN } else { BEGIN_CHECKED };
            match Closing::begin(&self.pool, statement).await {
                // Invalid parameter value; no such parameter.
                Err(refused) if !unchecked && has_code(&refused, &["22023", "42704"]) => {
                    self.unchecked.store(true, Ordering::Relaxed);
                }
                Err(refused) if tried < TRIES && takes_no_writes(&refused) => {
                    tried += 1;
                    close_stale(&self.pool).await;
                }
                begun => return begun,
            }
        }
    }
}

/// Looks at each idle connection, and closes those that lead to a standby.
async fn close_stale(pool: &PgPool) {
    for _ in 0..pool.options().get_max_connections() {
        // The connection that was refused comes back to the pool on a task of its own.
        tokio::task::yield_now().await;
        let Some(mut one) = pool.try_acquire() else { return };
        let asked = sqlx::query_scalar("SELECT pg_is_in_recovery()").persistent(false);
        let asked = timeout(CONNECT_LIMIT, asked.fetch_one(&mut *one)).await;
        if !matches!(asked, Ok(Ok(false))) {
            // It is of no use in any case.
            let _ = timeout(CONNECT_LIMIT, one.close()).await;
        }
    }
}

impl lends::Lends for Postgres {
    /// A rollback that takes longer is left to the server, because the connection is closed.
    const UNDO_LIMIT: Duration = Duration::from_secs(5);

    fn on(connection: &mut PgConnection) -> On<'_> {
        On::Postgres(connection)
    }

    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let tx = lender.get::<PgLender>()?.begin().await.map_err(StoreError::of("begin"))?;
        Ok(Open {
            tx: Begun::Closing(tx),
            #[cfg(feature = "sqlite")]
            turn: None,
            #[cfg(feature = "sqlite")]
            pool: None,
            #[cfg(all(feature = "sqlite", feature = "testing"))]
            elsewhere: None,
        })
    }

    async fn settle(
        open: Open<Self>,
        publisher: &Publisher,
        acks: &[Handled<'_>],
        _: &[Lease],
    ) -> Result<Ended, StoreError> {
        let Open { mut tx, .. } = open;
        let mut tally = Tally::begin();
        match write(&mut tx, publisher, acks, &mut tally).await {
            Ok(true) => {
                tx.commit().await.map_err(StoreError::of("commit")).map_err(spoilt)?;
                publisher.told(tally);
                Ok(Ended::Committed)
            }
            undone => {
                let rolled_back = tx.rollback().await.map_err(StoreError::of("roll back"));
                undone.and(rolled_back).map(|()| Ended::LeaseLost)
            }
        }
    }

    async fn try_out(
        open: &mut Open<Self>,
        publisher: &Publisher,
        messages: &[Prepared],
    ) -> Result<(), StoreError> {
        if !is_open(&open.tx) {
            return Err(StoreError::new("commit", OVER, false));
        }
        let messages: Vec<_> = messages.iter().collect();
        give_way(&mut open.tx, messages.iter().copied()).await?;
        publisher.insert_returned(&mut open.tx, &messages, &mut Tally::begin()).await?;
        // A statement that has failed before is reported here, too.
        let checked = open.tx.execute("SET CONSTRAINTS ALL IMMEDIATE").await;
        checked.map(|_| ()).map_err(StoreError::of("commit"))
    }

    async fn roll_back(open: Open<Self>, _: &Publisher, _: &[Lease]) -> Result<(), StoreError> {
        open.tx.rollback().await.map_err(StoreError::of("roll back"))
    }
}

/// Whatever came before that is undone.
const OVER: &str =
    "the handler has ended its transaction: by dropping the begin of a savepoint half-way";

/// An ack that takes longer may read the whole table. A connection of the user's pool, with the
/// user's settings, may keep a plan from when there were few rows.
const SLOW: Duration = Duration::from_millis(50);
/// How long acks are planned anew after that, each with one more round trip. By then the server has
/// looked at the table, or one more ack is slow.
const ANEW: Duration = Duration::from_secs(60);
/// Until when acks are planned anew.
static PLANNED_ANEW: Mutex<Option<Instant>> = Mutex::new(None);

/// Who waits for a timer that somebody has set and not committed is to give way, as an ack without a
/// transaction of the handler's does. An ack without timers waits as the handler's own statements do,
/// for whoever has its row locked: mostly for nobody.
async fn give_way<'a>(
    tx: &mut Begun<Postgres>,
    mut messages: impl Iterator<Item = &'a Prepared>,
) -> Result<(), StoreError> {
    if messages.any(|message| message.timer_id.is_some()) {
        tx.execute(GIVES_WAY).await.map_err(StoreError::of("ack")).map_err(spoilt)?;
    }
    Ok(())
}

/// Acks and publishes; `false` when a lease is another's.
async fn write(
    tx: &mut Begun<Postgres>,
    publisher: &Publisher,
    acks: &[Handled<'_>],
    tally: &mut Tally,
) -> Result<bool, StoreError> {
    if !is_open(tx) {
        return Err(StoreError::new("ack", OVER, false));
    }
    give_way(tx, acks.iter().flat_map(|handled| handled.messages)).await?;
    let mut acked = vec![false; acks.len()];
    for runs in Runs::of(acks, |handled| handled.lease, |_, _| true) {
        let own = &publisher.statements().postgres;
        let (begun, text) = (Instant::now(), &own.sql.ack);
        let anew = PLANNED_ANEW.locked().is_some_and(|until| begun < until);
        let row = if anew {
            // sqlx finds what it has prepared by its text, so the text is changed.
            let ack = runs.bound(&Arc::from(format!("{text}\n"))).persistent(false);
            ack.fetch_one(&mut **tx).await
        } else {
            let row = runs.bound(text).persistent(own.is_prepared()).fetch_one(&mut **tx).await;
            own.kept(tx, &row);
            row
        };
        if begun.elapsed() > SLOW {
            *PLANNED_ANEW.locked() = Some(Instant::now() + ANEW);
        }
        row.and_then(|row| runs.note(&row, &mut acked))
            .map_err(StoreError::of("ack"))
            .map_err(spoilt)?;
    }
    if acked.contains(&false) {
        return Ok(false);
    }
    for messages in together(acks) {
        publisher.insert_returned(tx, &messages, tally).await.map_err(spoilt)?;
    }
    Ok(true)
}

/// A transaction may have been spoilt by its handler: a statement in it failed, though the handler
/// said nothing of that, it took longer or was idle for longer than the server allows, or was made
/// read-only (a standby has refused its begin). Such a transaction would not be any better the next
/// time. A commit takes long by what the handler has left to it, such as constraints that are
/// deferred, or is refused by them. (No `statement_timeout` ends a commit; who cancels it may do so
/// for another reason.)
fn spoilt(failed: StoreError) -> StoreError {
    let handlers = failed.has_code(&["25P02", "25P03", "25P04", "25006"])
        || failed.action == "commit" && failed.has_code(&["55000", "40002"]);
    StoreError { transient: failed.transient && !handlers, ..failed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::Refused;

    /// Otherwise it would be put off without end.
    #[test]
    fn a_transaction_that_its_handler_has_spoilt_does_not_pass_by_itself() {
        let passes = |action, code| {
            let refused = sqlx::Error::Database(Box::new(Refused(code)));
            spoilt(StoreError::of(action)(refused)).transient
        };
        // A statement that failed, one left idle, one that took too long as a whole, a read-only one.
        for code in ["25P02", "25P03", "25P04", "25006"] {
            for action in ["ack", "publish", "commit"] {
                assert!(!passes(action, code), "{code}");
            }
        }
        // What a deferred constraint says.
        for code in ["55000", "40002"] {
            assert!(!passes("commit", code), "{code}");
            assert!(passes("ack", code), "{code}");
        }
        for code in ["40P01", "57014"] {
            assert!(passes("commit", code) && passes("ack", code), "{code}");
        }
    }
}
