//! A store with the whole engine over it, and what is left in its tables.

use outbox::testing::TestBroker;
use outbox::{Outgoing, RunningApp, Stats, Subscriber, SubscriberStats};
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use tokio::sync::Notify;

use super::left::{Left, Letter, letters, letters_of, rows, rows_of};

/// One of the three.
pub enum Stage {
    Broker,
    Database(Box<Db>),
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

    /// Asks the database for a sign of life.
    pub async fn ping(&self) {
        if let Self::Database(db) = self {
            db.exec("SELECT 1").await;
        }
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

    /// As another process would take every row that is leased; and keep it, whatever the lease.
    async fn steal(&self) {
        let On::Database(db, ..) = &self.on else { return };
        let (token, ahead) = if db.is_postgres() {
            ("gen_random_uuid()", "clock_timestamp() + interval '1 hour'")
        } else {
            ("randomblob(16)", "CAST((unixepoch('subsec') + 3600) * 1000000 AS INTEGER)")
        };
        let steal = format!(
            "UPDATE outbox SET acquired_token = {token}, acquired_at = {ahead} \
             WHERE acquired_token IS NOT NULL"
        );
        db.exec(steal).await;
    }

    /// As if what is there had been published an hour before it was. The broker's clock
    /// need not be waited for.
    pub async fn age(&self) {
        let On::Database(db, ..) = &self.on else { return };
        let hour = if db.is_postgres() { "interval '1 hour'" } else { "3600000000" };
        db.exec(format!("UPDATE outbox SET created_at = created_at - {hour}")).await;
    }

    /// Stops, and says what is left.
    pub async fn end(self) -> Scene {
        match self.on {
            On::Broker(ref broker) => {
                Scene { rows: rows(broker), letters: letters(broker), stats: self.stats() }
            }
            On::Database(db, stats, running) => {
                // A row is gone a moment before that is counted.
                running.stop().await.unwrap();
                let stats = stats.subscribers().remove(0);
                Scene { rows: rows_of(db).await, letters: letters_of(db).await, stats }
            }
        }
    }
}
