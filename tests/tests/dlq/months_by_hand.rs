//! Months beside what people made by hand.

use outbox_tests::db::Db;
use outbox_tests::on_postgres;

use super::{letters, plant};

on_postgres!(
    what_would_be_left_behind_is_refused,
    months_that_were_made_by_hand_are_known_by_their_bounds,
    a_month_without_an_end_has_its_own_letters_alone,
);

async fn what_would_be_left_behind_is_refused(db: &Db) {
    plant(db, "a", 1).await;
    db.exec("CREATE VIEW mine AS SELECT id FROM outbox_dlq").await;
    db.exec(
        "CREATE FUNCTION open_letters() RETURNS bigint \
         BEGIN ATOMIC SELECT count(*) FROM outbox_dlq; END",
    )
    .await;
    db.exec("CREATE RULE copied AS ON INSERT TO outbox_dlq DO ALSO NOTIFY letters").await;
    db.exec("CREATE TABLE accounts (id bigint)").await;
    db.exec(
        "CREATE POLICY clean ON accounts USING (id NOT IN (SELECT original_id FROM outbox_dlq))",
    )
    .await;
    db.exec("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        .await;
    db.exec("CREATE TRIGGER audit AFTER INSERT ON outbox_dlq FOR EACH ROW EXECUTE FUNCTION note()")
        .await;
    db.exec("CREATE INDEX theirs ON outbox_dlq (original_id)").await;
    db.exec("ALTER TABLE outbox_dlq ENABLE ROW LEVEL SECURITY").await;
    db.exec("CREATE PUBLICATION feed FOR TABLE outbox_dlq").await;
    db.exec("ALTER TABLE outbox_dlq ADD twice bigint GENERATED ALWAYS AS (original_id * 2) STORED")
        .await;
    db.exec("ALTER TABLE outbox_dlq ADD nth bigint GENERATED ALWAYS AS IDENTITY").await;
    db.exec("CREATE TABLE notes (note text PRIMARY KEY)").await;
    db.exec("ALTER TABLE outbox_dlq ADD CONSTRAINT known FOREIGN KEY (note) REFERENCES notes")
        .await;
    db.exec("ALTER TABLE outbox_dlq SET (autovacuum_vacuum_threshold = 500)").await;
    db.exec("ALTER TABLE outbox_dlq REPLICA IDENTITY FULL").await;
    db.exec("CREATE STATISTICS together ON queue, status FROM outbox_dlq").await;
    db.exec("CREATE FUNCTION id_of(outbox_dlq) RETURNS bigint LANGUAGE sql AS 'SELECT ($1).id'")
        .await;
    db.exec("CREATE FUNCTION many(outbox_dlq[]) RETURNS int LANGUAGE sql AS 'SELECT 1'").await;
    db.exec("CREATE TABLE kept (whole outbox_dlq)").await;
    let told = letters(db).partition(0).await.unwrap_err().to_string();
    for left in [
        "its replica identity",
        "the statistics together",
        "function id_of(outbox_dlq)",
        "function many(outbox_dlq[])",
        "column whole of kept",
        "the settings of its storage",
        "foreign key known",
        "trigger audit",
        "view mine",
        "function open_letters()",
        "rule copied",
        "policy clean of accounts",
        "index theirs",
        "row-level security",
        "publication feed",
        "generated column twice",
        "identity of the column nth",
    ] {
        assert!(told.contains(left), "{left}: {told}");
    }
    assert_eq!(letters(db).partitions().await.unwrap(), []);
    assert_eq!(db.letters().await, 1);
}

/// As a plan of months that somebody else keeps does.
async fn months_that_were_made_by_hand_are_known_by_their_bounds(db: &Db) {
    plant(db, "a", 2).await;
    letters(db).partition(0).await.unwrap();
    let day = async |months: i32| {
        let sql = format!(
            "SELECT to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + interval '{months} months', \
             'YYYY-MM-DD') || ' 00:00:00+00'"
        );
        db.texts(sql).await.remove(0)
    };
    let cut = async |name: &str, from: &str, until: &str| {
        db.exec(format!(
            "CREATE TABLE {name} PARTITION OF outbox_dlq FOR VALUES FROM ('{from}') TO ('{until}')"
        ))
        .await;
    };
    cut("quarter", &day(1).await, &day(4).await).await;
    let made = letters(db).partition(4).await.unwrap().made;
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(letters(db).partition(4).await.unwrap().made.len(), 0);
    // A week of the month behind those.
    let (from, until) = (day(5).await, day(5).await.replace("-01 ", "-08 "));
    cut("week", &from, &until).await;
    let told = letters(db).partition(5).await.unwrap_err().to_string();
    assert!(told.contains("have a part of the month from"), "{told}");
}

/// Beside the partition of what no month holds, which has no bounds at all.
async fn a_month_without_an_end_has_its_own_letters_alone(db: &Db) {
    plant(db, "a", 3).await;
    letters(db).partition(0).await.unwrap();
    db.exec(
        "CREATE TABLE zz PARTITION OF outbox_dlq FOR VALUES FROM ('2090-01-01 00:00Z') TO (MAXVALUE)",
    )
    .await;
    for (year, count) in [(2095, 2), (2085, 4)] {
        plant(db, &year.to_string(), count).await;
        let moved = format!("failed_at = '{year}-05-05 00:00Z' WHERE queue = '{year}'");
        db.exec(format!("UPDATE outbox_dlq SET {moved}")).await;
    }
    let months = letters(db).partitions().await.unwrap();
    let of = |name: &str| months.iter().find(|one| one.name == name).unwrap().letters;
    assert_eq!((of("zz"), of("outbox_dlq_default")), (2, 4), "{months:?}");
}
