//! Calls that are dropped on their way.

use std::time::Duration;

use outbox::ops::{Operator, SampleOptions, WhyOptions};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

on_postgres!(a_call_that_is_dropped_leaves_no_connection_of_the_pool_in_its_transaction,);

async fn a_call_that_is_dropped_leaves_no_connection_of_the_pool_in_its_transaction(db: &Db) {
    let options = (*db.pg().connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    let id = db.publish("q", 1).await;
    let mut dropped = 0;
    for micros in (0..4000).step_by(20) {
        let asking = async {
            operator.sample(&SampleOptions::default()).await.unwrap();
            operator.why(id, &WhyOptions::default()).await.unwrap();
        };
        dropped += usize::from(timeout(Duration::from_micros(micros), asking).await.is_err());
        let setting = "SELECT current_setting('transaction_read_only')";
        let read_only: String = sqlx::query_scalar(setting).fetch_one(&pool).await.unwrap();
        assert_eq!(read_only, "off", "after {micros} µs");
    }
    assert!(dropped > 20, "{dropped}");
}
