//! A role that lacks a right of a consumer's does not start one.

use std::collections::HashMap;

use outbox::ops::Operator;
use outbox::schema::validate_schema;
use outbox::{App, Context, Error, Publisher, Subscriber};
use outbox_tests::db::Db;
use sqlx::postgres::PgPool;

use crate::Granted;

fn app(db: &Db, pool: &PgPool) -> App {
    let subscriber = Subscriber::new("it", "q", |_: Context| async {});
    App::postgres(pool.clone()).names(db.names.clone()).only([subscriber])
}

/// Its handlers would run again after each lease.
async fn a_consumer_that_lacks_a_right_does_not_start_until_it_has_it(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    let role = format!("\"{}\"", granted.roles.consumer);
    validate_schema(&pool, &db.names, true).await.unwrap();
    for (right, table) in [
        ("DELETE", "outbox"),
        ("UPDATE (attempts_count)", "outbox"),
        ("SELECT", "outbox"),
        ("INSERT (note, queue)", "outbox_dlq"),
        ("INSERT (original_id)", "outbox_dlq"),
    ] {
        db.exec(format!("REVOKE {right} ON {table} FROM {role}")).await;
        let told = validate_schema(&pool, &db.names, true).await.unwrap_err();
        let Error::Schema(told) = told else { panic!("{told}") };
        let [one] = &told.differences[..] else { panic!("{told}") };
        let (verb, lacks) = (right.split(' ').next().unwrap(), format!("{role} lacks the right"));
        assert!(one.fatal && one.what.starts_with(&format!("{lacks} {verb} on")), "{one}");
        let refused = app(db, &pool).start().await.unwrap_err();
        let Error::Launch(reasons) = refused else { panic!("{refused}") };
        assert_eq!(reasons, [one.to_string()]);
        db.exec(one.mend.clone()).await;
        validate_schema(&pool, &db.names, true).await.unwrap();
        app(db, &pool).start().await.unwrap().stop().await.unwrap();
    }
    granted.end(&[&pool]).await;
}

/// To the role it looks as if there were no tables.
async fn a_role_that_may_not_use_the_schema_is_told_of_the_right(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    let role = format!("\"{}\"", granted.roles.consumer);
    db.exec(format!("REVOKE USAGE ON SCHEMA public FROM PUBLIC, {role}")).await;
    let refused = app(db, &pool).start().await.unwrap_err().to_string();
    let right = format!("GRANT USAGE ON SCHEMA public TO {role}");
    let told = format!("one in the schema public, which {role} may not use (`{right}`)");
    assert!(refused.contains(&told), "{refused}");
    db.exec(right).await;
    app(db, &pool).start().await.unwrap().stop().await.unwrap();
    granted.end(&[&pool]).await;
}

/// As in tables that Python made.
async fn a_consumer_that_may_take_no_id_of_a_letter_does_not_start(db: &Db) {
    ids_of_a_sequence(db, "OWNED BY outbox_dlq.id").await;
}

async fn nor_one_that_may_take_none_of_a_sequence_that_the_column_does_not_own(db: &Db) {
    ids_of_a_sequence(db, "OWNED BY NONE").await;
}

async fn ids_of_a_sequence(db: &Db, owned: &str) {
    db.exec(format!(
        "ALTER TABLE outbox_dlq ALTER COLUMN id DROP IDENTITY;
         CREATE SEQUENCE letter_ids {owned};
         ALTER TABLE outbox_dlq ALTER COLUMN id SET DEFAULT nextval('letter_ids')"
    ))
    .await;
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    app(db, &pool).start().await.unwrap().stop().await.unwrap();
    let role = format!("\"{}\"", granted.roles.consumer);
    db.exec(format!("REVOKE USAGE ON SEQUENCE letter_ids FROM {role}")).await;
    let refused = app(db, &pool).start().await.unwrap_err().to_string();
    let mend = format!("GRANT USAGE ON SEQUENCE public.letter_ids TO {role};");
    assert!(refused.ends_with(&mend), "{refused}");
    granted.end(&[&pool]).await;
}

/// What they hide shows nowhere else. Whoever owns the tables is not asked by them.
async fn policies_that_decide_for_a_role_are_told(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    let tables = ["outbox", "outbox_paused", "outbox_dlq"];
    for table in tables {
        db.exec(format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")).await;
    }
    let told = validate_schema(&pool, &db.names, true).await.unwrap_err();
    let Error::Schema(told) = told else { panic!("{told}") };
    assert_eq!(told.differences.len(), tables.len(), "{told}");
    for (table, one) in tables.iter().zip(&told.differences) {
        let active = format!(
            "row-level security is active on \"{table}\" for \"{}\"",
            granted.roles.consumer
        );
        assert!(!one.fatal && one.what.starts_with(&active), "{one}");
    }
    app(db, &pool).start().await.unwrap().stop().await.unwrap();
    validate_schema(db.pg(), &db.names, true).await.unwrap();
    for table in tables {
        let all = format!("CREATE POLICY everything ON {table} USING (true) WITH CHECK (true)");
        db.exec(all).await;
    }
    validate_schema(&pool, &db.names, true).await.unwrap();
    db.exec("CREATE POLICY but_for ON outbox AS RESTRICTIVE USING (queue <> 'other')").await;
    validate_schema(&pool, &db.names, true).await.unwrap_err();
    granted.end(&[&pool]).await;
}

/// None of its rights lacks.
async fn what_a_policy_refuses_is_not_told_as_a_right_that_lacks(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.producer();
    let publisher = Publisher::new(db.names.clone());
    db.exec(
        "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
         CREATE POLICY mine ON outbox USING (true) WITH CHECK (queue = 'mine')",
    )
    .await;
    for (queue, refused) in [("mine", false), ("theirs", true)] {
        let mut tx = pool.begin().await.unwrap();
        let published = publisher.publish(&mut tx, queue, &1).await;
        assert_eq!(published.is_err(), refused, "{queue}");
        let Err(error) = published else { continue };
        let told = error.to_string();
        assert!(told.contains("a policy of row-level security refuses it"), "{told}");
        assert!(!told.contains("print-grants"), "{told}");
    }
    granted.end(&[&pool]).await;
}

/// Each for a command, as some write them; and what decides for others.
async fn policies_that_let_everything_be_are_not_told(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.consumer();
    let check = async || validate_schema(&pool, &db.names, true).await;
    let policy = async |table: &str, name: &str, what: &str| {
        let anew = format!("DROP POLICY IF EXISTS {name} ON {table}; CREATE POLICY {name}");
        db.exec(format!("{anew} ON {table} {what}")).await;
    };
    let all = HashMap::from([
        ("reads", "FOR SELECT USING (true)"),
        ("adds", "FOR INSERT WITH CHECK (true)"),
        ("changes", "FOR UPDATE USING (true)"),
        ("deletes", "FOR DELETE USING (true)"),
    ]);
    for table in ["outbox", "outbox_paused", "outbox_dlq"] {
        db.exec(format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")).await;
        for (name, what) in &all {
            policy(table, name, what).await;
        }
    }
    check().await.unwrap();
    let producer = &granted.roles.producer;
    let theirs = format!("AS RESTRICTIVE TO \"{producer}\" USING (queue <> 'other')");
    policy("outbox", "theirs", &theirs).await;
    check().await.unwrap();
    // One of them for less than everything.
    for (name, instead) in [
        ("reads", "FOR SELECT USING (queue <> 'other')"),
        ("adds", "FOR INSERT WITH CHECK (queue <> 'other')"),
        ("changes", "FOR UPDATE USING (true) WITH CHECK (queue <> 'other')"),
        ("deletes", "FOR SELECT USING (true)"),
        ("deletes", "FOR DELETE"),
        ("adds", "FOR ALL WITH CHECK (queue <> 'other')"),
    ] {
        policy("outbox", name, instead).await;
        check().await.expect_err(instead);
        policy("outbox", name, all[name]).await;
        check().await.unwrap();
    }
    granted.end(&[&pool]).await;
}

/// It may not claim, so nothing is handled in its name.
async fn an_operator_finds_the_tables_as_they_have_to_be_and_starts_no_handlers(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.operator();
    Operator::postgres(pool.clone(), db.names.clone()).check(true).await.unwrap();
    let refused = app(db, &pool).start().await.unwrap_err().to_string();
    assert!(refused.contains("acquired_token"), "{refused}");
    granted.end(&[&pool]).await;
}

outbox_tests::on_postgres!(
    a_consumer_that_lacks_a_right_does_not_start_until_it_has_it,
    a_role_that_may_not_use_the_schema_is_told_of_the_right,
    a_consumer_that_may_take_no_id_of_a_letter_does_not_start,
    nor_one_that_may_take_none_of_a_sequence_that_the_column_does_not_own,
    policies_that_decide_for_a_role_are_told,
    what_a_policy_refuses_is_not_told_as_a_right_that_lacks,
    policies_that_let_everything_be_are_not_told,
    an_operator_finds_the_tables_as_they_have_to_be_and_starts_no_handlers,
);
