//! What each role may, statement by statement; everything else is refused with 42501.

use outbox_tests::db::Db;
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Executor};

use crate::Granted;

const NO: u8 = 0;
const PRODUCER: u8 = 1;
const CONSUMER: u8 = 2;
const OPERATOR: u8 = 4;
const ALL: u8 = 7;

/// Each with the roles that may.
const STATEMENTS: &[(&str, u8)] = &[
    ("INSERT INTO outbox (queue, payload) VALUES ('q', '')", ALL),
    ("INSERT INTO outbox (id, queue, payload) VALUES (99, 'q', '')", NO),
    ("INSERT INTO outbox (queue, payload, deliveries_count) VALUES ('q', '', 9)", NO),
    (
        "INSERT INTO outbox (queue, payload, acquired_token, acquired_at) \
         VALUES ('q', '', gen_random_uuid(), now())",
        NO,
    ),
    ("SELECT id FROM outbox", ALL),
    ("SELECT payload FROM outbox", CONSUMER | OPERATOR),
    ("SELECT headers FROM outbox", CONSUMER | OPERATOR),
    ("SELECT id FROM outbox FOR UPDATE", CONSUMER | OPERATOR),
    ("UPDATE outbox SET acquired_token = gen_random_uuid(), acquired_at = now()", CONSUMER),
    ("UPDATE outbox SET deliveries_count = 0", CONSUMER),
    ("UPDATE outbox SET next_attempt_at = now()", CONSUMER),
    ("UPDATE outbox SET payload = ''", CONSUMER),
    ("UPDATE outbox SET queue = 'other'", NO),
    ("UPDATE outbox SET id = id + 1000", NO),
    ("UPDATE outbox SET timer_id = 'other'", NO),
    ("UPDATE outbox SET created_at = now()", CONSUMER),
    ("DELETE FROM outbox WHERE id = 1", CONSUMER | OPERATOR),
    ("DELETE FROM outbox", CONSUMER | OPERATOR),
    ("TRUNCATE outbox", NO),
    ("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE", CONSUMER | OPERATOR),
    ("SELECT last_value FROM outbox_id_seq", OPERATOR),
    ("SELECT nextval('outbox_id_seq')", NO),
    ("SELECT payload FROM outbox_dlq", OPERATOR),
    ("SELECT id, queue, status, failed_at FROM outbox_dlq", CONSUMER | OPERATOR),
    ("SELECT headers, last_exception FROM outbox_dlq", OPERATOR),
    (
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at, \
            failure_reason) VALUES (1, 'q', '', 1, now(), 'rejected')",
        CONSUMER,
    ),
    (
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at, \
            failure_reason, status) VALUES (1, 'q', '', 1, now(), 'rejected', 'resolved')",
        NO,
    ),
    ("UPDATE outbox_dlq SET status = 'ignored', resolved_at = now(), note = 'n'", OPERATOR),
    ("UPDATE outbox_dlq SET fingerprint = 'f', replayed_id = 1", OPERATOR),
    ("UPDATE outbox_dlq SET payload = ''", NO),
    ("UPDATE outbox_dlq SET failed_at = now()", NO),
    ("DELETE FROM outbox_dlq", OPERATOR),
    ("TRUNCATE outbox_dlq", NO),
    ("SELECT queue FROM outbox_paused", CONSUMER | OPERATOR),
    ("INSERT INTO outbox_paused (queue) VALUES ('q')", OPERATOR),
    ("UPDATE outbox_paused SET note = 'n'", OPERATOR),
    ("DELETE FROM outbox_paused", OPERATOR),
    ("TRUNCATE outbox_paused", NO),
    ("ALTER TABLE outbox ADD COLUMN more text", NO),
    ("ALTER TABLE outbox_dlq DISABLE TRIGGER ALL", NO),
    ("DROP TABLE outbox", NO),
    ("CREATE INDEX ON outbox (created_at)", NO),
    ("CREATE TABLE mine ()", NO),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", NO),
    ("CREATE ROLE another", NO),
    ("SELECT version FROM _outbox_migrations", NO),
    ("SELECT pg_read_file('PG_VERSION')", NO),
];

/// `None` when it is done, otherwise the code.
async fn refused(pool: &PgPool, sql: &str) -> Option<String> {
    let mut tx = pool.begin().await.unwrap();
    let ended = tx.execute(AssertSqlSafe(sql)).await;
    tx.rollback().await.unwrap();
    ended.err().map(|error| match error {
        sqlx::Error::Database(error) => error.code().unwrap().into_owned(),
        other => panic!("{sql}: {other}"),
    })
}

async fn what_is_outside_a_role_is_refused(db: &Db) {
    // As it is since PostgreSQL 15.
    db.exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let granted = Granted::new(db, &db.names, false).await;
    let pools = [granted.producer(), granted.consumer(), granted.operator()];
    let mut wrong = Vec::new();
    for (sql, may) in STATEMENTS {
        for (role, pool) in [PRODUCER, CONSUMER, OPERATOR].into_iter().zip(&pools) {
            let ended = refused(pool, sql).await;
            let expected = (may & role == 0).then(|| "42501".to_owned());
            if ended != expected {
                wrong.push(format!("{role}: {sql}: {ended:?} instead of {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    granted.end(&pools.iter().collect::<Vec<_>>()).await;
}

async fn a_role_without_grants_may_nothing(db: &Db) {
    let role = outbox_tests::backend::unique("nobody");
    db.exec(format!("CREATE ROLE {role} LOGIN")).await;
    let options = (*db.pg().connect_options()).clone().username(&role);
    let pool = PgPool::connect_lazy_with(options);
    for (sql, _) in STATEMENTS {
        assert_eq!(refused(&pool, sql).await.as_deref(), Some("42501"), "{sql}");
    }
    pool.close().await;
    db.exec(format!("DROP ROLE {role}")).await;
}

outbox_tests::on_postgres!(what_is_outside_a_role_is_refused, a_role_without_grants_may_nothing);
