//! A handler runs on trial, and nothing of it lasts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use outbox::dlq::{DryOutcome, Filter, Replay};
use outbox::{Context, FailureReason, FromContext, HandlerError, Subscriber, Tx};
use outbox_tests::db::Db;
use outbox_tests::{on_both, on_postgres};

use super::{letters, plant};

on_both!(
    a_trial_shows_what_would_be_published_and_writes_nothing,
    a_trial_shows_the_error_that_would_be_stored,
    a_handler_on_trial_sees_what_a_replay_adds,
    a_handler_without_a_transaction_is_not_run,
    what_cannot_be_tried_is_told,
    a_handler_that_would_never_have_its_transaction_is_not_said_to_ack,
    a_letter_whose_timer_is_set_again_is_not_tried,
);

on_postgres!(what_only_a_commit_would_refuse_is_told);

macro_rules! handler {
    ($name:ident, $database:ty, $insert:literal) => {
        async fn $name(ctx: Context) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let n: i64 = ctx.decode()?;
            sqlx::query($insert).bind(n).execute(&mut *tx).await?;
            outbox::publish(&mut tx, "receipts", &n).await?;
            let two = [2, 3].map(|n| outbox::Outgoing::new("mails", &n));
            ctx.publisher().publish_batch(&mut tx, two).await?;
            ctx.publisher().collect(outbox::Outgoing::new("collected", "text"))?;
            if n == 1 { Err(HandlerError::new("Broken", "number one")) } else { Ok(()) }
        }
    };
}
handler!(on_postgres, sqlx::Postgres, "INSERT INTO done (n) VALUES ($1)");
handler!(on_sqlite, sqlx::Sqlite, "INSERT INTO done (n) VALUES (?)");

fn books(db: &Db) -> Subscriber {
    let books = if db.is_postgres() {
        Subscriber::new("books", "a", on_postgres).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("books", "a", on_sqlite).requires::<Tx<sqlx::Sqlite>>()
    };
    books.retry(outbox::retry::NoRetry)
}

/// The id of the letter of row `n`.
async fn letter(db: &Db, n: i64) -> i64 {
    db.int(format!("SELECT id FROM outbox_dlq WHERE original_id = {n}")).await
}

async fn untouched(db: &Db) {
    assert_eq!(db.int("SELECT count(*) FROM done").await, 0);
    assert_eq!(db.rows().await, 0);
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE status = 'failed'").await, 2);
}

/// Also of a message whose time to be started is over.
async fn a_trial_shows_what_would_be_published_and_writes_nothing(db: &Db) {
    outbox_tests::capture::start();
    plant(db, "a", 2).await;
    db.exec("UPDATE outbox_dlq SET headers = '{\"outbox-expires-in\": \"0\"}'").await;
    db.exec("CREATE TABLE done (n bigint)").await;
    let trial = db.app().only([books(db)]).dry_run(letter(db, 2).await).await.unwrap();
    let lines = outbox_tests::capture::lines().into_iter();
    let warnings: Vec<_> =
        lines.filter(|line| format!("{line:?}").contains("rolled back")).collect();
    assert!(warnings.is_empty(), "its transaction is undone: {warnings:?}");
    assert_eq!(
        (&*trial.subscriber, trial.outcome, trial.error),
        ("books", DryOutcome::Acked, None)
    );
    let queues: Vec<_> = trial.published.iter().map(|message| &*message.queue).collect();
    assert_eq!(queues, ["receipts", "mails", "mails", "collected"]);
    assert_eq!(trial.published[3].payload_bytes, 6);
    untouched(db).await;
    // The pool is whole: the transaction is over.
    plant(db, "b", 1).await;
}

async fn a_trial_shows_the_error_that_would_be_stored(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("CREATE TABLE done (n bigint)").await;
    let app = db.app().only([books(db)]);
    let trial = app.dry_run(letter(db, 1).await).await.unwrap();
    assert_eq!(trial.outcome, DryOutcome::Dead(FailureReason::RetryTerminal));
    let (kind, text) = trial.error.unwrap();
    assert_eq!(kind, "Broken");
    assert!(text.contains("number one"), "{text}");
    assert_eq!(trial.published, [], "it is rolled back");
    untouched(db).await;
    let panics = if db.is_postgres() {
        Subscriber::new("panics", "a", |ctx: Context| async move {
            let _tx = Tx::<sqlx::Postgres>::from_context(&ctx).await;
            if true {
                panic!("on trial")
            }
        })
        .requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("panics", "a", |ctx: Context| async move {
            let _tx = Tx::<sqlx::Sqlite>::from_context(&ctx).await;
            if true {
                panic!("on trial")
            }
        })
        .requires::<Tx<sqlx::Sqlite>>()
    };
    let app = db.app().only([panics.retry(outbox::retry::NoRetry)]);
    let trial = app.dry_run(letter(db, 1).await).await.unwrap();
    assert_eq!(trial.error.unwrap().0, HandlerError::PANIC);
    untouched(db).await;
}

/// One that stops after so many replays is tried as it would run.
async fn a_handler_on_trial_sees_what_a_replay_adds(db: &Db) {
    plant(db, "a", 2).await;
    let again = r#"'{"outbox-replays":"2","outbox-original-id":"9","tenant":1}'"#;
    db.exec(format!("UPDATE outbox_dlq SET headers = {again} WHERE original_id = 2")).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let seen = Arc::clone(&seen);
        move |ctx: &Context| seen.lock().unwrap().push(ctx.headers().clone())
    };
    let watches = if db.is_postgres() {
        Subscriber::new("watches", "a", move |ctx: Context| {
            note(&ctx);
            async move { drop(Tx::<sqlx::Postgres>::from_context(&ctx).await) }
        })
        .requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("watches", "a", move |ctx: Context| {
            note(&ctx);
            async move { drop(Tx::<sqlx::Sqlite>::from_context(&ctx).await) }
        })
        .requires::<Tx<sqlx::Sqlite>>()
    };
    let app = db.app().only([watches]);
    for n in [1, 2] {
        app.dry_run(letter(db, n).await).await.unwrap();
    }
    let on_trial = std::mem::take(&mut *seen.lock().unwrap());
    letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let mut replayed = std::mem::take(&mut *seen.lock().unwrap());
    replayed.sort_by_key(|headers| headers.get("outbox-replays").map(str::to_owned));
    assert_eq!(on_trial, replayed);
    assert_eq!(replayed[1].get("outbox-replays"), Some("3"));
}

async fn a_handler_without_a_transaction_is_not_run(db: &Db) {
    plant(db, "a", 1).await;
    let runs = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&runs);
    let mails = Subscriber::new("mails", "a", move |_: Context| {
        seen.fetch_add(1, Ordering::SeqCst);
        async {}
    });
    let told = db.app().only([mails]).dry_run(letter(db, 1).await).await.unwrap_err().to_string();
    assert!(told.contains("`mails`") && told.contains("does not take `Tx`"), "{told}");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

async fn what_cannot_be_tried_is_told(db: &Db) {
    plant(db, "other", 1).await;
    let app = db.app().only([books(db)]);
    let told = app.dry_run(4711).await.unwrap_err().to_string();
    assert!(told.contains("no dead letter 4711"), "{told}");
    let told = app.dry_run(letter(db, 1).await).await.unwrap_err().to_string();
    assert!(told.contains("no subscriber") && told.contains("`other`"), "{told}");
}

async fn a_handler_that_would_never_have_its_transaction_is_not_said_to_ack(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("CREATE TABLE done (n bigint)").await;
    let app = db.app().only([books(db).ack(outbox::AckPolicy::AckFirst)]);
    let told = app.dry_run(letter(db, 2).await).await.unwrap_err().to_string();
    assert!(told.contains("`AckFirst`"), "{told}");
    untouched(db).await;
}

async fn a_letter_whose_timer_is_set_again_is_not_tried(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("CREATE TABLE done (n bigint)").await;
    db.exec("UPDATE outbox_dlq SET timer_id = 't' WHERE original_id = 2").await;
    let hour = std::time::Duration::from_secs(3600);
    db.send(outbox::Outgoing::new("a", &9).timer_id("t").delay(hour)).await;
    let app = db.app().only([books(db)]);
    let refused = app.dry_run(letter(db, 2).await).await.unwrap_err().to_string();
    assert!(refused.contains("a live row of the queue has its timer name"), "{refused}");
    app.dry_run(letter(db, 1).await).await.unwrap();
}

/// A constraint that is deferred, and a statement whose error the handler kept to itself.
async fn what_only_a_commit_would_refuse_is_told(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("CREATE TABLE known (n bigint PRIMARY KEY)").await;
    db.exec("INSERT INTO known VALUES (3)").await;
    db.exec("CREATE TABLE done (n bigint REFERENCES known DEFERRABLE INITIALLY DEFERRED)").await;
    let app = db.app().only([books(db)]);
    let trial = app.dry_run(letter(db, 2).await).await.unwrap();
    assert_eq!(trial.outcome, DryOutcome::Dead(FailureReason::RetryTerminal));
    let (kind, text) = trial.error.unwrap();
    assert!(kind == HandlerError::TRANSACTION && text.contains("foreign key"), "{kind}: {text}");

    let keeps = Subscriber::new("keeps", "a", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        drop(sqlx::query("SELECT nothing").execute(&mut *tx).await);
        Ok::<_, HandlerError>(())
    });
    let keeps = keeps.requires::<Tx<sqlx::Postgres>>().retry(outbox::retry::NoRetry);
    let trial = db.app().only([keeps]).dry_run(letter(db, 2).await).await.unwrap();
    let (kind, text) = trial.error.unwrap();
    assert!(kind == HandlerError::TRANSACTION && text.contains("aborted"), "{kind}: {text}");
    assert!(text.contains("the handler has not returned its error"), "{text}");
    untouched(db).await;
}
