//! Why a row is not there.

use std::time::Duration;

use outbox::Publisher;
use outbox::ops::{Answer, Operator, SampleOptions, WhyOptions};
use outbox::schema::{Database, sql};
use outbox_tests::db::{Db, Pool};
use outbox_tests::probe::{free, with_result};
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use outbox_tests::wire::Wire;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;

use super::why::why;
use super::{letter, operator};

on_both!(
    a_row_that_was_handled_is_gone,
    a_row_that_failed_for_good_is_a_dead_letter,
    a_letter_that_was_replayed_leads_to_the_row_and_the_row_to_the_letter,
    an_id_that_was_never_given_out_is_unknown,
    only_so_many_letters_are_looked_at_and_it_says_so,
    a_row_whose_transaction_is_open_may_be_uncommitted,
);

outbox_tests::cases!(sqlite in sqlite_only:
    short_writes_to_a_file_lock_it_for_nobody,
    a_table_named_in_other_letters_has_given_out_the_same_ids,
    a_table_that_keeps_no_last_id_may_have_given_out_any);

on_postgres!(
    a_row_that_is_committed_meanwhile_is_not_gone,
    a_row_of_a_prepared_transaction_may_be_uncommitted,
    a_row_that_was_rolled_back_is_gone,
    short_transactions_are_not_taken_for_open_ones,
);

async fn a_row_that_was_handled_is_gone(db: &Db) {
    let (subscriber, _) = free("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let id = db.publish("q", 1).await;
    db.drained().await;
    running.stop().await.unwrap();
    let why = why(db, id).await;
    let [Answer::Gone { last_id, letters_read }] = why.answers[..] else { panic!("{why:?}") };
    assert_eq!((last_id, letters_read, why.is_known()), (Some(id), None, true));
}

async fn a_row_that_failed_for_good_is_a_dead_letter(db: &Db) {
    let (subscriber, probe) = with_result("it", "q", |_| Err("down".to_owned()));
    let running = db.app().only([subscriber.retry(outbox::retry::NoRetry)]).start().await.unwrap();
    probe.let_end(1);
    let id = db.publish("q", 1).await;
    db.drained().await;
    running.stop().await.unwrap();
    let open = why(db, id).await;
    let [Answer::DeadLetter(found)] = &open.answers[..] else { panic!("{open:?}") };
    assert_eq!((found.original_id, found.status.as_str()), (id, "failed"));
    assert_eq!((found.failure_reason.as_str(), found.replayed_id), ("retry_terminal", None));
    let told = open.answers[0].told();
    assert!(told.next.contains(&format!("dlq replay {}", found.letter_id)), "{told:?}");
    db.exec("UPDATE outbox_dlq SET status = 'ignored'").await;
    let told = why(db, id).await.answers[0].told();
    assert!(told.next.contains("dlq show") && !told.next.contains("replay"), "{told:?}");
}

async fn a_letter_that_was_replayed_leads_to_the_row_and_the_row_to_the_letter(db: &Db) {
    let (first, second) = (db.publish("q", 1).await, db.publish("q", 1).await);
    db.exec("DELETE FROM outbox").await;
    let id = letter(db, "q", first).await;
    let replayed = format!("status = 'resolved', replayed_id = {second}");
    db.exec(format!("UPDATE outbox_dlq SET {replayed} WHERE id = {id}")).await;
    let of_first = why(db, first).await;
    let [Answer::DeadLetter(found)] = &of_first.answers[..] else { panic!("{of_first:?}") };
    assert_eq!((found.letter_id, found.replayed_id), (id, Some(second)));
    assert!(of_first.answers[0].told().next.contains(&format!("outbox why {second}")));
    let of_second = why(db, second).await;
    let [Answer::Gone { .. }, Answer::ReplayOf(origin)] = &of_second.answers[..] else {
        panic!("{of_second:?}")
    };
    assert_eq!((origin.letter_id, origin.original_id), (id, first));
}

async fn an_id_that_was_never_given_out_is_unknown(db: &Db) {
    let last = db.publish("q", 1).await;
    for id in [last + 1, i64::MAX, 0, -1, i64::MIN] {
        let why = why(db, id).await;
        let [Answer::NeverGivenOut { last_id }] = why.answers[..] else { panic!("{why:?}") };
        assert_eq!((last_id, why.is_known()), (last, false));
    }
}

async fn only_so_many_letters_are_looked_at_and_it_says_so(db: &Db) {
    for _ in 0..5 {
        db.publish("q", 1).await;
    }
    db.exec("DELETE FROM outbox").await;
    for id in 1..=4 {
        letter(db, "q", id).await;
    }
    let mut options = WhyOptions::default();
    options.letters = Some(3);
    let of = async |id, options: &WhyOptions| operator(db).why(id, options).await.unwrap().answers;
    assert!(matches!(of(2, &options).await[..], [Answer::DeadLetter(_)]));
    let [Answer::Gone { letters_read: Some(3), .. }] = of(1, &options).await[..] else { panic!() };
    assert!(matches!(of(1, &WhyOptions::default()).await[..], [Answer::DeadLetter(_)]));
    let all = options.all_letters();
    assert!(matches!(of(1, &all).await[..], [Answer::DeadLetter(_)]));
    assert!(matches!(of(5, &all).await[..], [Answer::Gone { letters_read: None, .. }]));
}

async fn a_row_whose_transaction_is_open_may_be_uncommitted(db: &Db) {
    let publisher = Publisher::new(db.names.clone());
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            let pid: i32 =
                sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
            let id = publisher.publish(&mut tx, "q", &1).await.unwrap().id().unwrap();
            let open = why(db, id).await;
            let Answer::Uncommitted { writers } = &open.answers[0] else { panic!("{open:?}") };
            let [writer] = &writers[..] else { panic!("{open:?}") };
            assert_eq!((writer.pid, writer.application_name.as_deref()), (Some(pid), Some("test")));
            assert_eq!(writer.state.as_deref(), Some("idle in transaction"));
            assert!(open.answers[0].told().what.contains(&format!("pid {pid}")));
            tx.commit().await.unwrap();
            assert!(why(db, id).await.row.is_some());
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            let id = publisher.publish(&mut tx, "q", &1).await.unwrap().id().unwrap();
            let open = why(db, id).await;
            assert!(matches!(open.answers[0], Answer::Uncommitted { .. }), "{open:?}");
            assert!(open.is_known());
            tx.commit().await.unwrap();
            assert!(why(db, id).await.row.is_some());
        }
    }
}

async fn a_row_of_a_prepared_transaction_may_be_uncommitted(_: &Db) {
    let server = Server::start(&[("max_prepared_transactions", "2")]).unwrap();
    let db = Db::of(&server).await;
    let mut connection = db.pg().acquire().await.unwrap();
    for sql in [
        "BEGIN",
        "INSERT INTO outbox (queue, payload) VALUES ('q', '7')",
        "PREPARE TRANSACTION 'why'",
    ] {
        connection.execute(sql).await.unwrap();
    }
    let open = why(&db, 1).await;
    let Answer::Uncommitted { writers } = &open.answers[0] else { panic!("{open:?}") };
    assert_eq!((writers.len(), writers[0].pid), (1, None));
    connection.execute("COMMIT PREPARED 'why'").await.unwrap();
    assert!(why(&db, 1).await.row.is_some());
}

async fn a_row_that_was_rolled_back_is_gone(db: &Db) {
    let mut tx = db.pg().begin().await.unwrap();
    let publisher = Publisher::new(db.names.clone());
    let id = publisher.publish(&mut tx, "q", &1).await.unwrap().id().unwrap();
    tx.rollback().await.unwrap();
    assert!(matches!(why(db, id).await.answers[..], [Answer::Gone { .. }]));
}

/// Its transaction ends while those that are open are looked for.
async fn a_row_that_is_committed_meanwhile_is_not_gone(db: &Db) {
    let publisher = Publisher::new(db.names.clone());
    for _ in 0..10 {
        let wire = Wire::of(db).await;
        let pool = PgPoolOptions::new().connect_lazy_with(wire.options.clone());
        let operator = Operator::postgres(pool.clone(), db.names.clone());
        let mut tx = db.pg().begin().await.unwrap();
        let id = publisher.publish(&mut tx, "q", &1).await.unwrap().id().unwrap();
        let ending = async {
            let look = async || wire.counts().of("-- Who holds locks") > 0;
            eventually("they are looked for", look).await;
            tx.commit().await.unwrap();
        };
        let options = WhyOptions::default();
        let (why, ()) = tokio::join!(operator.why(id, &options), ending);
        pool.close().await;
        let why = why.unwrap();
        assert!(!why.answers.iter().any(|one| matches!(one, Answer::Gone { .. })), "{why:?}");
        if why.row.is_some() {
            return;
        }
        // Where the machine stood still it may have ended after the last look.
    }
    panic!("it was open until the end each time");
}

async fn a_table_named_in_other_letters_has_given_out_the_same_ids(db: &Db) {
    let id = db.publish("q", 1).await;
    db.exec("DELETE FROM outbox").await;
    let Pool::Sqlite(pool) = &db.pool else { panic!("this is PostgreSQL") };
    let names = outbox::TableNames::new("Outbox").unwrap();
    let operator = Operator::sqlite(pool.clone(), names);
    let why = operator.why(id, &WhyOptions::default()).await.unwrap();
    assert!(matches!(why.answers[..], [Answer::Gone { .. }]), "{why:?}");
}

/// As tools make it that do not know the word: no table of the file has it.
async fn a_table_that_keeps_no_last_id_may_have_given_out_any(_: &Db) {
    let db = Db::bare_sqlite().await.unwrap();
    let made = sql(Database::Sqlite, &db.names);
    assert!(made.contains(" AUTOINCREMENT"));
    db.exec(made.replace(" AUTOINCREMENT", "")).await;
    let sample = async || operator(&db).sample(&SampleOptions::default()).await.unwrap();
    let before = sample().await;
    let id = db.publish("q", 1).await;
    db.exec("DELETE FROM outbox").await;
    for id in [id, id + 1] {
        let why = why(&db, id).await;
        assert!(matches!(why.answers[..], [Answer::Gone { last_id: None, .. }]), "{why:?}");
    }
    assert_eq!(sample().await.rates_since(&before).published_per_second, None);
    db.close().await;
}

/// As a drain does: it is always written to, and by nobody for long.
async fn short_writes_to_a_file_lock_it_for_nobody(db: &Db) {
    let id = db.publish("q", 1).await;
    let Pool::Sqlite(pool) = &db.pool else { panic!("this is PostgreSQL") };
    let write = || async {
        loop {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            sqlx::query("UPDATE outbox SET queue = queue").execute(&mut *tx).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            tx.commit().await.unwrap();
        }
    };
    let asking = async {
        let mut free = 0;
        for _ in 0..20 {
            let (known, unknown) = (why(db, id).await, why(db, id + 1).await);
            let locked = known.answers.iter().any(|one| matches!(one, Answer::TableLocked { .. }));
            free += usize::from(!locked && !unknown.is_known());
        }
        assert!(free >= 15, "{free} of 20");
    };
    tokio::select! {
        () = asking => {}
        ((), ()) = async { tokio::join!(write(), write()) } => unreachable!("they have no end"),
    }
}

/// As statements of the engine: there is always one, and none for long.
async fn short_transactions_are_not_taken_for_open_ones(db: &Db) {
    let id = db.publish("q", 1).await;
    db.exec("DELETE FROM outbox").await;
    db.publish("other", 1).await;
    let writing = async {
        loop {
            db.exec("UPDATE outbox SET queue = queue WHERE pg_sleep(0.01)::text = 'never'").await;
        }
    };
    let asking = async {
        let mut gone = 0;
        for _ in 0..20 {
            let answers = why(db, id).await.answers;
            gone += usize::from(matches!(answers[..], [Answer::Gone { .. }]));
        }
        // On a machine that is busy with other things some do take long.
        assert!(gone >= 10, "{gone} of 20");
    };
    tokio::select! {
        () = asking => {}
        () = writing => unreachable!("it has no end"),
    }
}
