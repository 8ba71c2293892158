//! Timers that handlers return: also the one on which they run.

use outbox::retry::NoRetry;
use outbox::{
    Context, FromContext, HandlerError, Outgoing, PublishError, Subscriber, TimerConflict, Tx,
};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::*;

on_both!(
    a_timer_is_set_again_with_the_ack_and_not_through_its_own_transaction,
    a_returned_timer_that_a_trigger_leaves_out_undoes_the_ack,
);
on_postgres!(a_returned_timer_whose_name_has_become_free_meanwhile_is_written);

fn tick() -> Outgoing {
    Outgoing::new("tick", &7).timer_id("tick").delay(60 * SECOND)
}

macro_rules! handler {
    ($name:ident, $database:ty) => {
        async fn $name(ctx: Context) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let publisher = ctx.publisher();
            let one = publisher.send(&mut tx, tick()).await.unwrap_err();
            let batch = publisher.publish_batch(&mut tx, [tick()]).await.unwrap_err();
            for refused in [one, batch] {
                assert!(matches!(refused, PublishError::OwnTimer { .. }), "{refused}");
            }
            // Of another queue, it is another timer.
            publisher.send(&mut tx, Outgoing::new("tock", &7).timer_id("tick")).await?;
            Ok(publisher.collect(tick())?)
        }
    };
}

handler!(on_postgres, sqlx::Postgres);
handler!(on_sqlite, sqlx::Sqlite);

async fn a_timer_is_set_again_with_the_ack_and_not_through_its_own_transaction(db: &Db) {
    let subscriber = if db.is_postgres() {
        Subscriber::new("tick", "tick", on_postgres).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("tick", "tick", on_sqlite).requires::<Tx<sqlx::Sqlite>>()
    };
    let running = db.app().only([subscriber]).start().await.unwrap();
    let first = db.send(Outgoing::new("tick", &7).timer_id("tick")).await.id().unwrap();
    eventually("it is acked", async || {
        db.int(format!("SELECT count(*) FROM outbox WHERE id = {first}")).await == 0
    })
    .await;
    running.stop().await.unwrap();
    let set = async |queue: &str| {
        let set = "SELECT count(*) FROM outbox WHERE timer_id = 'tick' AND attempts_count = 0";
        db.int(format!("{set} AND queue = '{queue}'")).await
    };
    assert_eq!((set("tick").await, set("tock").await, db.letters().await), (1, 1, 0));
}

macro_rules! returns {
    ($name:ident, $database:ty) => {
        async fn $name(ctx: Context) -> Result<(), HandlerError> {
            let _tx = Tx::<$database>::from_context(&ctx).await?;
            for (n, extend) in ctx.decode::<Vec<(i64, bool)>>()? {
                let conflict = if extend { TimerConflict::Extend } else { TimerConflict::Ignore };
                let timer = Outgoing::new("poison", &n).timer_id(format!("t{n}"));
                ctx.publisher().collect(timer.on_conflict(conflict))?;
            }
            Ok(())
        }
    };
}

returns!(returns_on_postgres, sqlx::Postgres);
returns!(returns_on_sqlite, sqlx::Sqlite);

/// The row that it is returned for is all that is left of it. One that is there already was not
/// left out.
async fn a_returned_timer_that_a_trigger_leaves_out_undoes_the_ack(db: &Db) {
    for n in [1, 2] {
        db.send(Outgoing::new("poison", &n).timer_id(format!("t{n}"))).await;
    }
    // Somebody works on it.
    let leased = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    let now = if db.is_postgres() { "now()" } else { "unixepoch() * 1000000" };
    db.exec(format!(
        "UPDATE outbox SET acquired_token = {leased}, acquired_at = {now} WHERE timer_id = 't2'"
    ))
    .await;
    db.exec(if db.is_postgres() {
        "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RETURN CASE NEW.queue WHEN 'poison' THEN NULL ELSE NEW END; END $$;
         CREATE TRIGGER leave_out BEFORE INSERT ON outbox
             FOR EACH ROW EXECUTE FUNCTION leave_out()"
    } else {
        "CREATE TRIGGER leave_out BEFORE INSERT ON outbox WHEN NEW.queue = 'poison'
             BEGIN SELECT RAISE(IGNORE); END"
    })
    .await;
    let subscriber = if db.is_postgres() {
        Subscriber::new("q", "q", returns_on_postgres).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("q", "q", returns_on_sqlite).requires::<Tx<sqlx::Sqlite>>()
    };
    let running = db.app().only([subscriber.retry(NoRetry)]).start().await.unwrap();
    let (held, leased, left_out) = ((1, false), (2, true), (3, false));
    for sent in [&[held][..], &[leased], &[(2, false)], &[held, leased]] {
        db.send(Outgoing::new("q", &sent)).await;
    }
    // Whichever of them it is.
    for sent in [&[left_out][..], &[(4, true)], &[held, leased, left_out], &[left_out, leased]] {
        db.send(Outgoing::new("q", &sent)).await;
    }
    settled(db).await;
    running.stop().await.unwrap();
    let why = db.texts("SELECT last_exception FROM outbox_dlq ORDER BY id").await;
    assert_eq!(why.len(), 4, "{why:?}");
    assert!(why.iter().all(|why| why.contains("trigger of the outbox leaves it out")), "{why:?}");
}

/// Who held it has settled between the statement that met it and the one that looks for it: here
/// it looks so, because a trigger leaves out the first.
async fn a_returned_timer_whose_name_has_become_free_meanwhile_is_written(db: &Db) {
    db.exec(
        "CREATE SEQUENCE tries;
         GRANT USAGE ON SEQUENCE tries TO PUBLIC;
         CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.queue = 'poison' AND nextval('tries') = 1 THEN RETURN NULL; END IF;
             RETURN NEW; END $$;
         CREATE TRIGGER leave_out BEFORE INSERT ON outbox
             FOR EACH ROW EXECUTE FUNCTION leave_out()",
    )
    .await;
    let subscriber =
        Subscriber::new("q", "q", returns_on_postgres).requires::<Tx<sqlx::Postgres>>();
    let running = db.app().only([subscriber.retry(NoRetry)]).start().await.unwrap();
    db.send(Outgoing::new("q", &[(1, false)])).await;
    settled(db).await;
    running.stop().await.unwrap();
    let timers = "SELECT count(*) FROM outbox WHERE queue = 'poison' AND timer_id = 't1'";
    assert_eq!((db.int(timers).await, db.letters().await), (1, 0));
}
