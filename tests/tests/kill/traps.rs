//! Where the database itself tells how far an ack is: triggers on the deletion of
//! the row.

use outbox_tests::db::{Db, Pool};

/// In PostgreSQL they wait for whoever holds one of these advisory locks.
pub const ACKING: i64 = 1;
pub const COMMITTING: i64 = 2;

const POSTGRES: [&str; 3] = [
    "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NULL; END $$",
    "CREATE TRIGGER acking AFTER DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION hold(1)",
    "CREATE CONSTRAINT TRIGGER committing AFTER DELETE ON outbox DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION hold(2)",
];

/// In SQLite they compare with a collation, which is a function of the process.
const SQLITE: [&str; 2] = [
    "CREATE TRIGGER deleting AFTER DELETE ON outbox
     WHEN OLD.queue = 'work' COLLATE step BEGIN SELECT 1; END",
    "CREATE TRIGGER inserting AFTER INSERT ON outbox
     WHEN NEW.queue = 'receipts' COLLATE step BEGIN SELECT 1; END",
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
    pub async fn take(db: &Db, lock: i64) -> Self {
        let mut tx = db.pg().begin().await.unwrap();
        let taken = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(lock).execute(&mut *tx);
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
