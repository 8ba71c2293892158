//! Where the database itself tells how far a claim or an ack is: triggers.

use outbox_tests::db::{Db, Pool};

/// In PostgreSQL they wait for whoever holds the advisory lock of the stage.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// The statement that claims.
    Claiming = 1,
    /// The statement that acks.
    Acking = 2,
    /// The commit of the ack.
    Committing = 3,
    /// The statement that writes a dead letter.
    Burying = 4,
}

const POSTGRES: [&str; 5] = [
    "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NULL; END $$",
    "CREATE TRIGGER claiming AFTER UPDATE OF acquired_token ON outbox
     FOR EACH ROW EXECUTE FUNCTION hold(1)",
    "CREATE TRIGGER acking AFTER DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION hold(2)",
    "CREATE CONSTRAINT TRIGGER committing AFTER DELETE ON outbox DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION hold(3)",
    "CREATE TRIGGER burying AFTER INSERT ON outbox_dlq FOR EACH ROW EXECUTE FUNCTION hold(4)",
];

/// In SQLite they compare with a collation, which is a function of the process.
const SQLITE: [&str; 4] = [
    "CREATE TRIGGER taking AFTER UPDATE OF acquired_token ON outbox
     WHEN OLD.queue || ' taken' = 'work taken' COLLATE step BEGIN SELECT 1; END",
    "CREATE TRIGGER deleting AFTER DELETE ON outbox
     WHEN OLD.queue || ' deleted' = 'work deleted' COLLATE step BEGIN SELECT 1; END",
    "CREATE TRIGGER inserting AFTER INSERT ON outbox
     WHEN NEW.queue || ' inserted' = 'receipts inserted' COLLATE step BEGIN SELECT 1; END",
    "CREATE TRIGGER burying AFTER INSERT ON outbox_dlq
     WHEN NEW.queue || ' buried' = 'work buried' COLLATE step BEGIN SELECT 1; END",
];

pub async fn set(db: &Db) {
    let triggers: &[&str] = if db.is_postgres() { &POSTGRES } else { &SQLITE };
    for &trigger in triggers {
        db.exec(trigger).await;
    }
}

/// Holds an advisory lock until it is released or dropped.
pub struct Hold(sqlx::PgTransaction<'static>);

impl Hold {
    pub async fn take(db: &Db, stage: Stage) -> Self {
        let mut tx = db.pg().begin().await.unwrap();
        let taken =
            sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(stage as i64).execute(&mut *tx);
        taken.await.unwrap();
        Self(tx)
    }

    pub async fn release(self) {
        self.0.rollback().await.unwrap();
    }
}

/// Publishes these numbers, as a process with a collation of its own.
pub async fn publish(db: &Db, numbers: impl Iterator<Item = i64>) {
    let messages = numbers.map(|n| outbox::Outgoing::new("work", &n));
    let Pool::Sqlite(pool) = &db.pool else {
        db.send_all(messages).await;
        return;
    };
    let mut tx = outbox::sqlite::begin(pool).await.unwrap();
    tx.lock_handle().await.unwrap().create_collation("step", str::cmp).unwrap();
    outbox::Publisher::new(db.names.clone()).publish_batch(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}
