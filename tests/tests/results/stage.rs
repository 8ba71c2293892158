//! A store with the whole engine over it, and what is left in its tables.

use std::time::{Duration, SystemTime};

use outbox::testing::TestBroker;
use outbox::{Outgoing, RunningApp, Stats, Subscriber, SubscriberStats};
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use tokio::sync::Notify;

use super::HOUR;

/// One of the three.
pub enum Stage {
    Broker,
    Database(Box<Db>),
}

/// A row that is left.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    pub queue: String,
    pub payload: String,
    pub attempts: i64,
    pub deliveries: i64,
    /// In how many hours it is due; zero when it is due now.
    pub hours: i64,
}

/// A dead letter.
#[derive(Debug, PartialEq, Eq)]
pub struct Letter {
    pub payload: String,
    pub reason: String,
    pub kind: Option<String>,
    pub exception: Option<String>,
    pub note: Option<String>,
}

/// Runs every case on all three.
macro_rules! on_all {
    ($($case:ident),* $(,)?) => {
        on_all!(broker: $($case),*);
        on_all!(sqlite: $($case),*);
        on_all!(postgres: $($case),*);
    };
    ($stage:ident: $($case:ident),*) => {
        mod $stage {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(stage) = crate::stage::Stage::$stage().await else { return };
                super::$case(&stage).await;
                stage.close().await;
            })*
        }
    };
}
pub(crate) use on_all;

impl Stage {
    pub async fn broker() -> Option<Self> {
        Some(Self::Broker)
    }

    pub async fn sqlite() -> Option<Self> {
        Db::sqlite().await.map(|db| Self::Database(Box::new(db)))
    }

    pub async fn postgres() -> Option<Self> {
        Db::postgres().await.map(|db| Self::Database(Box::new(db)))
    }

    pub async fn close(self) {
        if let Self::Database(db) = self {
            db.close().await;
        }
    }

    /// The subscriber at work, with these messages published.
    pub async fn play(
        &self,
        subscriber: Subscriber,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Play<'_> {
        let on = match self {
            Self::Broker => {
                let broker = TestBroker::with([subscriber]);
                broker.publish_batch(messages).await.unwrap();
                On::Broker(broker)
            }
            Self::Database(db) => {
                // Before the start, so that a batch is whole.
                db.send_all(messages).await;
                let app = db.app().only([subscriber]);
                let stats = app.stats();
                On::Database(db, stats, app.start().await.unwrap())
            }
        };
        Play { on }
    }

    /// Leaves nothing in the tables; the broker is another each time.
    pub async fn clear(&self) {
        if let Self::Database(db) = self {
            db.exec("DELETE FROM outbox").await;
            db.exec("DELETE FROM outbox_dlq").await;
        }
    }

    /// Steals the lease of a handler that has begun; then lets it go on.
    pub async fn stolen(&self, subscriber: Subscriber, begun: &Notify, go: &Notify) -> Scene {
        self.stolen_while_it_runs(subscriber, begun, async { go.notify_one() }).await
    }

    /// Steals the lease of a handler that has begun, and waits until its delivery is
    /// over.
    pub async fn stolen_while_it_runs(
        &self,
        subscriber: Subscriber,
        begun: &Notify,
        meanwhile: impl Future<Output = ()>,
    ) -> Scene {
        match self {
            Self::Broker => {
                let broker = TestBroker::with([subscriber]);
                let thief = async {
                    begun.notified().await;
                    broker.lose_leases();
                    meanwhile.await;
                };
                let both = async { tokio::join!(broker.publish("q", &7), thief) };
                let (published, ()) = soon("its delivery is over", both).await;
                published.unwrap();
                Play { on: On::Broker(broker) }.end().await
            }
            Self::Database(_) => {
                let play = self.play(subscriber, [super::seven()]).await;
                soon("it begins", begun.notified()).await;
                play.steal().await;
                soon("it goes on", meanwhile).await;
                play.closed(1).await;
                play.end().await
            }
        }
    }

    /// Runs one message until its first delivery is over.
    pub async fn first(&self, subscriber: Subscriber, message: Outgoing) -> Scene {
        let play = self.play(subscriber, [message]).await;
        play.closed(1).await;
        play.end().await
    }
}

enum On<'a> {
    Broker(TestBroker),
    Database(&'a Db, Stats, RunningApp),
}

pub struct Play<'a> {
    on: On<'a>,
}

/// What is left when the play is over.
pub struct Scene {
    pub rows: Vec<Left>,
    pub letters: Vec<Letter>,
    pub stats: SubscriberStats,
}

impl Scene {
    /// The one row that is left, of which there is no letter.
    #[track_caller]
    pub fn row(mut self) -> Left {
        assert!(self.rows.len() == 1 && self.letters.is_empty(), "{:?}", (self.rows, self.letters));
        self.rows.remove(0)
    }

    /// The one letter; its row is gone.
    #[track_caller]
    pub fn letter(mut self) -> Letter {
        assert!(self.rows.is_empty() && self.letters.len() == 1, "{:?}", (self.rows, self.letters));
        self.letters.remove(0)
    }

    #[track_caller]
    pub fn is_empty(&self) {
        assert!(self.rows.is_empty() && self.letters.is_empty());
    }
}

/// Deliveries that are over.
pub fn closed(stats: &SubscriberStats) -> u64 {
    let written = stats.acked + stats.retried + stats.snoozed + stats.terminal();
    written + stats.lease_lost + stats.abandoned
}

impl Play<'_> {
    pub fn stats(&self) -> SubscriberStats {
        let stats = match &self.on {
            On::Broker(broker) => broker.stats(),
            On::Database(_, stats, _) => stats.clone(),
        };
        stats.subscribers().remove(0)
    }

    /// Waits until so many deliveries are over, and on the broker no longer than
    /// for what is due.
    pub async fn closed(&self, deliveries: u64) {
        eventually("they are over", async || closed(&self.stats()) >= deliveries).await;
    }

    /// Waits until no row of the queue is left, through every delay.
    pub async fn gone(&self) {
        match &self.on {
            On::Broker(broker) => {
                broker.run_until_idle().await;
                assert!(broker.rows().iter().all(|row| row.queue != "q"));
            }
            On::Database(db, ..) => {
                let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
                eventually("it is gone", async || db.int(left).await == 0).await;
            }
        }
    }

    /// As another process would take every row that is leased.
    async fn steal(&self) {
        let On::Database(db, ..) = &self.on else { return };
        let (token, now) = if db.is_postgres() {
            ("gen_random_uuid()", "clock_timestamp()")
        } else {
            ("randomblob(16)", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)")
        };
        let steal = format!(
            "UPDATE outbox SET acquired_token = {token}, acquired_at = {now} \
             WHERE acquired_token IS NOT NULL"
        );
        db.exec(steal).await;
    }

    /// Stops, and says what is left.
    pub async fn end(self) -> Scene {
        let stats = self.stats();
        match self.on {
            On::Broker(broker) => Scene { rows: rows(&broker), letters: letters(&broker), stats },
            On::Database(db, _, running) => {
                running.stop().await.unwrap();
                Scene { rows: rows_of(db).await, letters: letters_of(db).await, stats }
            }
        }
    }
}

fn rows(broker: &TestBroker) -> Vec<Left> {
    let left = |row: outbox::Row| Left {
        hours: hours(row.next_attempt_at, broker.now()),
        queue: row.queue,
        payload: String::from_utf8_lossy(&row.payload).into_owned(),
        attempts: row.attempts_count.cast_signed(),
        deliveries: row.deliveries_count.cast_signed(),
    };
    broker.rows().into_iter().map(left).collect()
}

fn letters(broker: &TestBroker) -> Vec<Letter> {
    let letter = |letter: outbox::DeadLetter| Letter {
        payload: String::from_utf8_lossy(&letter.payload).into_owned(),
        reason: letter.failure_reason.as_str().to_owned(),
        kind: letter.error_kind,
        exception: letter.last_exception,
        note: letter.note,
    };
    broker.dlq_rows().into_iter().map(letter).collect()
}

/// Rounded: the databases' clocks run while a case does.
fn hours(due: SystemTime, now: SystemTime) -> i64 {
    let wait = due.duration_since(now).unwrap_or(Duration::ZERO);
    i64::try_from((wait + HOUR / 2).as_secs() / 3600).unwrap()
}

/// Between the columns of a row in a text.
const BETWEEN: char = '\u{1f}';

async fn table(db: &Db, columns: &[&str], rest: &str) -> Vec<Vec<Option<String>>> {
    let joined: Vec<_> = columns.iter().map(|one| format!("coalesce({one}, '-')")).collect();
    let between = if db.is_postgres() { "|| chr(31) ||" } else { "|| char(31) ||" };
    let lines = db.texts(format!("SELECT {} FROM {rest}", joined.join(between))).await;
    let cell = |cell: &str| (cell != "-").then(|| cell.to_owned());
    lines.iter().map(|line| line.split(BETWEEN).map(cell).collect()).collect()
}

fn payload(db: &Db) -> &'static str {
    if db.is_postgres() { "convert_from(payload, 'UTF8')" } else { "CAST(payload AS text)" }
}

async fn rows_of(db: &Db) -> Vec<Left> {
    let hours = if db.is_postgres() {
        "round(greatest(extract(epoch FROM next_attempt_at - clock_timestamp()), 0) / 3600)"
    } else {
        "max(0, next_attempt_at / 1000000 - unixepoch() + 1800) / 3600"
    };
    let hours = format!("CAST({hours} AS text)");
    let columns = [
        "queue",
        payload(db),
        "CAST(attempts_count AS text)",
        "CAST(deliveries_count AS text)",
        &hours,
    ];
    let rows = table(db, &columns, "outbox ORDER BY id").await;
    let left = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || cells.next().unwrap();
        let (queue, payload) = (next(), next());
        let mut number = || next().parse().unwrap();
        Left { queue, payload, attempts: number(), deliveries: number(), hours: number() }
    };
    rows.into_iter().map(left).collect()
}

async fn letters_of(db: &Db) -> Vec<Letter> {
    let columns = [payload(db), "failure_reason", "error_kind", "last_exception", "note"];
    let letters = table(db, &columns, "outbox_dlq ORDER BY original_id").await;
    let letter = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter();
        let mut next = || cells.next().unwrap();
        Letter {
            payload: next().unwrap(),
            reason: next().unwrap(),
            kind: next(),
            exception: next(),
            note: next(),
        }
    };
    letters.into_iter().map(letter).collect()
}
