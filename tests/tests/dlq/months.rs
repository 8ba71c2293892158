//! A large dead-letter table in months.

use std::time::Duration;

use outbox::TableNames;
use outbox::dlq::{Filter, Kept, Replay, Replayed, Status};
use outbox::ops::Operator;
use outbox::retry::NoRetry;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::with_result;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::{letters, plant};

on_postgres!(
    a_table_in_months_keeps_its_letters_and_serves_everything,
    months_come_when_they_are_asked_for_again,
    months_are_known_whatever_a_backslash_means_to_the_session,
    months_are_known_whatever_zone_the_session_is_in,
    old_months_go_with_their_counts_and_open_letters_keep_theirs,
    months_go_beside_those_who_read_letters,
    privileges_and_columns_of_others_are_kept,
    rights_that_were_taken_away_do_not_come_back,
    a_table_that_is_not_the_first_of_the_path_is_cut_where_it_lies,
    two_letters_that_were_given_one_id_are_two,
    a_letter_of_a_time_that_nobody_means_is_of_no_month,
    a_table_that_is_in_the_way_of_a_month_is_told,
    ids_go_on_behind_those_of_a_sequence_that_the_column_does_not_own,
    a_table_that_is_not_there_is_not_told_as_one_without_months,
);
on_both!(a_table_without_months_has_none);
outbox_tests::cases!(sqlite in sqlite_only: sqlite_has_no_months);

const DAY: u64 = 86_400;

/// Letters of `a`, one each 20 days, the oldest 200 days ago.
async fn over_months(db: &Db) {
    plant(db, "a", 10).await;
    let spread =
        "UPDATE outbox_dlq SET failed_at = now() - (11 - original_id) * interval '20 days'";
    db.exec(spread).await;
}

async fn of(db: &Db) -> Vec<(i64, i64)> {
    let page = letters(db).list(&Filter::new(), None, 1000).await.unwrap();
    page.letters.iter().map(|letter| (letter.id, letter.original_id)).collect()
}

async fn months_are_known_whatever_a_backslash_means_to_the_session(db: &Db) {
    over_months(db).await;
    let off = [("standard_conforming_strings", "off"), ("escape_string_warning", "off")];
    let options = (*db.pg().connect_options()).clone().options(off);
    let pool = PgPool::connect_with(options).await.unwrap();
    let letters = Operator::postgres(pool.clone(), db.names.clone()).dead_letters();
    letters.partition(1).await.unwrap();
    assert_eq!(letters.partition(1).await.unwrap().made, [""; 0]);
    let months = letters.partitions().await.unwrap();
    // Seven at least are over or under way, one is to come, and one is the default one.
    assert!(months.len() > 8, "{months:?}");
    assert!(months.iter().rev().skip(1).all(|month| month.from < month.until), "{months:?}");
    pool.close().await;
}

/// PostgreSQL writes India's time as IST, and reads that as Israel's.
async fn months_are_known_whatever_zone_the_session_is_in(db: &Db) {
    over_months(db).await;
    letters(db).partition(1).await.unwrap();
    let there = letters(db).partitions().await.unwrap();
    // By a hook: sqlx asks for a style and a zone of its own when it connects.
    let pool = PgPoolOptions::new().after_connect(|connection, _| {
        let set = "SET datestyle = 'SQL'; SET timezone = 'Asia/Kolkata'";
        Box::pin(async move { connection.execute(set).await.map(|_| ()) })
    });
    let pool = pool.connect_with((*db.pg().connect_options()).clone()).await.unwrap();
    let letters = Operator::postgres(pool.clone(), db.names.clone()).dead_letters();
    assert_eq!(letters.partitions().await.unwrap(), there);
    assert_eq!(letters.partition(1).await.unwrap().made, [""; 0]);
    let second = there[1].from.unwrap();
    let gone = letters.drop_partitions(second, true).await.unwrap();
    assert_eq!(gone.iter().map(|month| &month.name).collect::<Vec<_>>(), [&there[0].name]);
    pool.close().await;
}

async fn a_table_in_months_keeps_its_letters_and_serves_everything(db: &Db) {
    over_months(db).await;
    // An id that was given out, to a letter that is gone.
    plant(db, "gone", 1).await;
    db.exec("DELETE FROM outbox_dlq WHERE queue = 'gone'").await;
    let last = db.int("SELECT max(id) + 1 FROM outbox_dlq").await;
    let before = of(db).await;
    let done = letters(db).partition(2).await.unwrap();
    assert!(done.converted && done.moved == 10 && done.made.len() >= 9, "{done:?}");
    assert_eq!(of(db).await, before);
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq_default").await, 0);
    let months = letters(db).partitions().await.unwrap();
    assert_eq!(months.iter().map(|month| month.letters).sum::<u64>(), 10);
    assert!(months.iter().rev().skip(1).all(|month| month.from < month.until));
    assert_eq!(months.last().unwrap().name, "outbox_dlq_default");

    // The schema is as it has to be, and migrations still run.
    outbox::schema::validate_schema(db.pg(), &db.names, true).await.unwrap();
    db.migrate().await;
    outbox::schema::validate_schema(db.pg(), &db.names, true).await.unwrap();

    // The engine buries, and everything that operators do works.
    let (fails, probe) = with_result("fails", "b", |_| Err("it is broken".into()));
    probe.let_end(100);
    let running = db.app().only([fails.retry(NoRetry)]).start().await.unwrap();
    for n in 0..5 {
        db.publish("b", n).await;
    }
    db.drained().await;
    running.stop().await.unwrap();
    let b = Filter::new().queue("b");
    let buried = letters(db).list(&b, None, 10).await.unwrap().letters;
    assert_eq!(buried.len(), 5);
    assert!(buried.iter().all(|letter| letter.id > last), "no id comes twice: {last}, {buried:?}");
    assert_eq!(letters(db).groups(&Filter::new(), 10).await.unwrap().count, 2);
    assert_eq!(letters(db).replay(&b, &Replay::new().limit(2)).await.unwrap().replayed, 2);
    assert_eq!(letters(db).resolve(&b, None).await.unwrap(), 3);
    assert_eq!(letters(db).ignore(&Filter::new().ids([before[0].0]), None).await.unwrap(), 1);
    assert!(letters(db).show(before[0].0).await.unwrap().is_some());
    assert_eq!(letters(db).purge(&Filter::new()).await.unwrap(), 6);
    assert_eq!(letters(db).count(&Filter::new().status(Status::Failed)).await.unwrap(), 9);
}

async fn months_come_when_they_are_asked_for_again(db: &Db) {
    plant(db, "a", 2).await;
    assert_eq!(letters(db).partition(0).await.unwrap().made.len(), 1);
    let again = letters(db).partition(0).await.unwrap();
    assert_eq!((again.converted, again.made.len(), again.moved), (false, 0, 0));
    over_months(db).await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id IN (3, 9)").await;
    assert!(db.int("SELECT count(*) FROM outbox_dlq_default").await > 0);
    for month in letters(db).partitions().await.unwrap() {
        let there = db.int(format!("SELECT count(*) FROM {}", month.name)).await;
        let open = format!("SELECT count(*) FROM {} WHERE status = 'failed'", month.name);
        let counted = (month.letters.cast_signed(), month.open.cast_signed());
        assert_eq!(counted, (there, db.int(open).await), "{month:?}");
    }
    let before = of(db).await;
    let later = letters(db).partition(1).await.unwrap();
    assert!(later.moved > 0 && later.made.len() > 5, "{later:?}");
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq_default").await, 0);
    assert_eq!(of(db).await, before);
}

async fn old_months_go_with_their_counts_and_open_letters_keep_theirs(db: &Db) {
    over_months(db).await;
    let letters = letters(db);
    letters.partition(0).await.unwrap();
    // Letter 1, the oldest, stays open.
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE original_id <> 1").await;
    let before = letters.now().await.unwrap() - Duration::from_secs(70 * DAY);
    let gone = letters.drop_partitions(before, false).await.unwrap();
    let (kept, dropped): (Vec<_>, Vec<_>) = gone.iter().partition(|month| !month.dropped);
    assert_eq!((kept.len(), kept[0].open), (1, 1));
    assert!(dropped.len() >= 3, "{gone:?}");
    let counted: u64 = dropped.iter().map(|month| month.letters).sum();
    assert_eq!(db.letters().await.unsigned_abs(), 10 - counted);
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE original_id = 1").await, 1);
    let forced = letters.drop_partitions(before, true).await.unwrap();
    assert_eq!((forced.len(), forced[0].dropped, forced[0].open), (1, true, 1));
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE original_id = 1").await, 0);
    assert_eq!(letters.drop_partitions(before, true).await.unwrap(), []);
}

/// Who reads letters locks the table, then its months.
async fn months_go_beside_those_who_read_letters(db: &Db) {
    over_months(db).await;
    let letters = letters(db);
    letters.partition(0).await.unwrap();
    let before = letters.now().await.unwrap() - Duration::from_secs(70 * DAY);
    let mut reader = db.pg().begin().await.unwrap();
    let first = "LOCK TABLE ONLY outbox_dlq IN ACCESS SHARE MODE";
    sqlx::query(first).execute(&mut *reader).await.unwrap();
    let drop = tokio::spawn(async move { letters.drop_partitions(before, true).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event_type = 'Lock'";
    eventually("the drop waits", async || db.int(waits).await > 0).await;
    let read = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM outbox_dlq");
    assert_eq!(read.fetch_one(&mut *reader).await.unwrap(), 10);
    reader.commit().await.unwrap();
    let gone = drop.await.unwrap().unwrap();
    let counted: u64 = gone.iter().map(|month| month.letters).sum();
    assert!(counted > 0 && gone.iter().all(|month| month.dropped), "{gone:?}");
    assert_eq!(db.letters().await.unsigned_abs(), 10 - counted);
}

async fn privileges_and_columns_of_others_are_kept(db: &Db) {
    let role = unique("reader");
    let schema = "other place";
    db.exec(format!("CREATE SCHEMA \"{schema}\"")).await;
    let names = TableNames::new("my \"box").unwrap().in_schema(schema).unwrap();
    let db = db.named(names.with_dlq("d".repeat(46)).unwrap());
    db.migrate().await;
    let table = format!("\"{schema}\".\"{}\"", "d".repeat(46));
    db.exec(format!("CREATE ROLE {role}")).await;
    db.exec(format!("GRANT SELECT (id, queue) ON {table} TO {role}")).await;
    db.exec(format!("GRANT DELETE ON {table} TO {role} WITH GRANT OPTION")).await;
    db.exec(format!("ALTER TABLE {table} ADD COLUMN \"mine too\" text DEFAULT 'x'")).await;
    db.exec(format!(
        "INSERT INTO {table} (original_id, queue, payload, deliveries_count, created_at, \
            failure_reason, \"mine too\") VALUES (1, 'q', '\\x37', 1, now(), 'rejected', 'kept')"
    ))
    .await;
    assert!(letters(&db).partition(1).await.unwrap().converted);
    let held = format!(
        "SELECT count(*) FROM (SELECT 1) AS one WHERE has_column_privilege('{role}', '{table}', 'queue', 'SELECT') \
            AND NOT has_table_privilege('{role}', '{table}', 'SELECT') \
            AND has_table_privilege('{role}', '{table}', 'DELETE WITH GRANT OPTION')"
    );
    assert_eq!(db.int(held).await, 1);
    assert_eq!(db.texts(format!("SELECT \"mine too\" FROM {table}")).await, ["kept"]);
    outbox::schema::validate_schema(db.pg(), &db.names, false).await.unwrap();
    assert_eq!(letters(&db).replay(&Filter::new(), &Replay::new()).await.unwrap().replayed, 1);
    db.exec(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// What the database gives away with each new table is what the letters did not have.
async fn rights_that_were_taken_away_do_not_come_back(db: &Db) {
    let role = unique("reader");
    plant(db, "a", 1).await;
    db.exec(format!("CREATE ROLE {role}")).await;
    db.exec(format!("ALTER DEFAULT PRIVILEGES GRANT SELECT, DELETE ON TABLES TO {role}, PUBLIC"))
        .await;
    db.exec(format!("GRANT INSERT ON outbox_dlq TO {role}")).await;
    let may = async |right: &str| {
        let may = format!(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace \
                AND relname LIKE 'outbox\\_dlq%' AND relkind IN ('r', 'p') \
                AND has_table_privilege('{role}', oid, '{right}') ORDER BY 1"
        );
        db.texts(may).await
    };
    for months in 1..=2 {
        let done = letters(db).partition(months).await.unwrap();
        assert_eq!(done.converted, months == 1);
        assert!(!done.made.is_empty());
        assert_eq!(may("SELECT").await, [""; 0]);
        assert_eq!(may("DELETE").await, [""; 0]);
        // What was granted stays.
        assert_eq!(may("INSERT").await, ["outbox_dlq", "outbox_dlq_default"]);
    }
    db.exec(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// A month elsewhere would be one that the engine does not find.
async fn a_table_that_is_not_the_first_of_the_path_is_cut_where_it_lies(db: &Db) {
    db.exec("CREATE SCHEMA first").await;
    plant(db, "a", 1).await;
    let options: PgConnectOptions = db.url.parse().unwrap();
    let pool = PgPool::connect_lazy_with(options.options([("search_path", "first,public")]));
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    for months in 0..2 {
        operator.dead_letters().partition(months).await.unwrap();
        let elsewhere = "SELECT count(*) FROM pg_class WHERE relnamespace = 'first'::regnamespace";
        assert_eq!((db.int(elsewhere).await, of(db).await.len()), (0, 1));
    }
    outbox::schema::validate_schema(db.pg(), &db.names, true).await.unwrap();
    pool.close().await;
}

/// A sequence begins again where a table was restored without it.
async fn two_letters_that_were_given_one_id_are_two(db: &Db) {
    letters(db).partition(0).await.unwrap();
    let again = async |queue: &str| {
        db.exec("ALTER TABLE outbox_dlq ALTER id RESTART WITH 5").await;
        plant(db, queue, 1).await;
    };
    let old = "UPDATE outbox_dlq SET failed_at = failed_at - interval '40 days' WHERE queue = 'a'";
    let open = async || db.texts("SELECT queue FROM outbox_dlq WHERE status = 'failed'").await;
    again("a").await;
    db.exec(old).await;
    again("b").await;
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE id = 5").await, 2);
    // Each has a problem of its own, also where another writer left that open.
    let problems = async || {
        letters(db).groups(&Filter::new(), 10).await.unwrap();
        db.texts("SELECT fingerprint FROM outbox_dlq WHERE id = 5 ORDER BY queue").await
    };
    let own = problems().await;
    assert_ne!(own[0], own[1]);
    db.exec("UPDATE outbox_dlq SET fingerprint = NULL WHERE queue = 'a'").await;
    assert_eq!(problems().await, own);
    let opened = letters(db).show(5).await.unwrap().unwrap();
    assert_eq!(opened.letter.queue, "a", "the one that is replayed first");
    let first = letters(db).list(&Filter::new(), None, 1).await.unwrap();
    let second = letters(db).list(&Filter::new(), first.next, 1).await.unwrap();
    assert_eq!([first, second].map(|page| page.letters[0].queue.clone()), ["b", "a"]);
    assert_eq!(letters(db).ignore(&Filter::new().queue("a"), None).await.unwrap(), 1);
    assert_eq!(open().await, ["b"]);
    assert_eq!(letters(db).show(5).await.unwrap().unwrap().letter.queue, "b", "the open one");
    assert_eq!(letters(db).purge(&Filter::new()).await.unwrap(), 1);
    assert_eq!(open().await, ["b"]);

    again("a").await;
    db.exec(old).await;
    let mut told = Vec::new();
    let tell = |batch: &[Replayed]| told.extend(batch.iter().map(|one| one.row.err()));
    let first = letters(db).replay_with(&Filter::new(), &Replay::new(), tell).await.unwrap();
    assert_eq!((first.replayed, first.kept, open().await), (1, 1, vec!["b".into()]));
    assert_eq!(told, [None, Some(Kept::SameId)]);
    assert_eq!(db.texts("SELECT queue FROM outbox").await, ["a"]);
    let second = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!((second.replayed, second.kept, db.rows().await), (1, 0, 2));
}

async fn a_letter_of_a_time_that_nobody_means_is_of_no_month(db: &Db) {
    let times = ["294276-12-31", "12026-07-01", "9999-12-31", "0044-03-15 BC", "infinity"];
    plant(db, "a", 1 + u32::try_from(times.len()).unwrap()).await;
    for (n, time) in (1..).zip(times) {
        db.exec(format!("UPDATE outbox_dlq SET failed_at = '{time}' WHERE original_id = {n}"))
            .await;
    }
    let done = letters(db).partition(0).await.unwrap();
    assert_eq!(done.moved, 1, "{done:?}");
    let again = letters(db).partition(0).await.unwrap();
    assert_eq!((again.made.len(), again.moved), (0, 0));
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq_default").await, 5);
    assert_eq!(of(db).await.len(), 6);
}

/// As one that was detached, to be kept.
async fn a_table_that_is_in_the_way_of_a_month_is_told(db: &Db) {
    plant(db, "a", 1).await;
    let next =
        "SELECT 'outbox_dlq_' || to_char(now() AT TIME ZONE 'UTC' + interval '1 month', 'YYYY_MM')";
    let next = db.texts(next).await.remove(0);
    db.exec(format!("CREATE TABLE {next} (LIKE outbox_dlq)")).await;
    let told = letters(db).partition(1).await.unwrap_err().to_string();
    assert!(told.contains(&next) && told.ends_with("attach or rename it"), "{told}");
    assert_eq!(letters(db).partitions().await.unwrap(), []);
    db.exec(format!("ALTER TABLE {next} RENAME TO kept")).await;
    assert!(letters(db).partition(1).await.unwrap().made.contains(&next));
    // In another schema it is in nobody's way.
    db.exec(format!("CREATE SCHEMA other; CREATE TABLE other.{next} (); DROP TABLE {next}")).await;
    assert_eq!(letters(db).partition(1).await.unwrap().made, [next]);
}

async fn ids_go_on_behind_those_of_a_sequence_that_the_column_does_not_own(db: &Db) {
    db.exec(
        "ALTER TABLE outbox_dlq ALTER COLUMN id DROP IDENTITY;
         CREATE SEQUENCE letter_ids;
         ALTER TABLE outbox_dlq ALTER COLUMN id SET DEFAULT nextval('letter_ids')",
    )
    .await;
    plant(db, "gone", 5).await;
    db.exec("DELETE FROM outbox_dlq").await;
    letters(db).partition(0).await.unwrap();
    plant(db, "a", 1).await;
    assert_eq!(of(db).await, [(6, 1)]);
}

async fn a_table_that_is_not_there_is_not_told_as_one_without_months(db: &Db) {
    let letters = letters(&db.named(db.names.clone().with_dlq("outbox_dql").unwrap()));
    let now = letters.now().await.unwrap();
    for error in [
        letters.partitions().await.unwrap_err(),
        letters.drop_partitions(now, true).await.unwrap_err(),
    ] {
        let told = error.to_string();
        assert!(told.contains("\"outbox_dql\" does not exist"), "{told}");
        assert!(told.contains("`outbox migrate`"), "{told}");
    }
}

async fn a_table_without_months_has_none(db: &Db) {
    plant(db, "a", 1).await;
    assert_eq!(letters(db).partitions().await.unwrap(), []);
    let now = letters(db).now().await.unwrap();
    assert!(letters(db).drop_partitions(now, true).await.is_err());
}

async fn sqlite_has_no_months(db: &Db) {
    let now = letters(db).now().await.unwrap();
    let told = [
        letters(db).partition(1).await.unwrap_err().to_string(),
        letters(db).drop_partitions(now, false).await.unwrap_err().to_string(),
    ];
    assert!(told.iter().all(|told| told.contains("purge old letters")), "{told:?}");
}
