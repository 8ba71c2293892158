//! The channel of every table that a hostile name makes: whoever listens there hears who
//! notifies there, and nobody's name is cut or changed on the way.

use std::collections::HashSet;

use outbox::TableNames;
use outbox::testing::store::{PgStore, Store, Wake, Wakes};
use outbox_tests::db::Db;
use outbox_tests::hostile::names;
use outbox_tests::on_postgres;
use outbox_tests::wait::soon;
use sqlx::postgres::PgListener;

on_postgres!(hostile_channels_are_listened_to_and_notified_under_one_name);

/// Of the 500 those that a table may have.
fn tables() -> Vec<TableNames> {
    let names = names();
    assert_eq!(names.len(), 500);
    names.into_iter().filter_map(|name| TableNames::new(name).ok()).collect()
}

/// As the server has it, both ways.
async fn is_one_name(db: &Db, listener: &mut PgListener, channel: &str) {
    listener.listen(channel).await.unwrap();
    let listening = "SELECT name FROM pg_listening_channels() AS listening(name)";
    let heard: Vec<String> = sqlx::query_scalar(listening).fetch_all(&mut *listener).await.unwrap();
    assert_eq!(heard, [channel]);
    notify(db, channel, "seven").await;
    let heard = soon("it is heard", listener.recv()).await.unwrap();
    assert_eq!((heard.channel(), heard.payload()), (channel, "seven"));
    listener.unlisten(channel).await.unwrap();
}

async fn notify(db: &Db, channel: &str, queue: &str) {
    let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(queue);
    notify.execute(db.pg()).await.unwrap();
}

/// The library listens too, and is told.
async fn is_heard_by_an_app(db: &Db, names: TableNames) {
    let channel = names.channel();
    let store = PgStore::new(db.pg(), names);
    let mut wakes = soon("it listens", store.listen()).await.unwrap();
    notify(db, &channel, "orders").await;
    let told = soon("it is told", wakes.next()).await.unwrap();
    assert!(matches!(&told, Wake::Queue(queue) if queue == "orders"), "{channel:?}: {told:?}");
    drop(wakes);
    store.close().await;
}

async fn hostile_channels_are_listened_to_and_notified_under_one_name(db: &Db) {
    let tables = tables();
    assert!(tables.len() > 200, "{} can be tables", tables.len());
    let channels: HashSet<String> = tables.iter().map(TableNames::channel).collect();
    assert_eq!(channels.len(), tables.len(), "each has its own");
    let mut listener = PgListener::connect_with(db.pg()).await.unwrap();
    for channel in &channels {
        assert!(channel.len() <= 63, "{channel:?}");
        is_one_name(db, &mut listener, channel).await;
    }
    // The test's pool has three more.
    let lane = async |lane: usize| {
        for names in tables.iter().skip(lane).step_by(3) {
            is_heard_by_an_app(db, names.clone()).await;
        }
    };
    tokio::join!(lane(0), lane(1), lane(2));
    println!("{} channels", channels.len());
}
