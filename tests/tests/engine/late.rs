//! Connections that come later than whoever asked for them has to wait, and those on which
//! no answer comes any more.

use std::sync::Arc;

use outbox::testing::store::{Claim, Expects, PgStore, Store, new_token};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgPoolOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{HOUR, SECOND};

on_postgres!(
    a_connection_that_comes_too_late_for_its_statement_is_kept,
    after_one_connection_gave_no_answer_no_other_is_believed_to_live,
);

fn claiming(store: &PgStore) -> JoinHandle<()> {
    let claim = Claim {
        queues: Arc::from([String::from("q")]),
        limit: 1,
        lease_ttl: HOUR,
        token: new_token(),
        after: None,
        max_deliveries: None,
        expects: Expects::Few,
    };
    let store = store.clone();
    tokio::spawn(async move { drop(store.claim(&[claim]).await.unwrap()) })
}

/// A way to the server for one connection, which leads there once that is told.
async fn closed_way(db: &Db) -> (String, oneshot::Sender<()>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://{}/way", socket.local_addr().unwrap());
    let (open, opened) = oneshot::channel();
    let options = db.pg().connect_options();
    let server = format!("{}:{}", options.get_host(), options.get_port());
    tokio::spawn(async move {
        let (mut client, _) = socket.accept().await.unwrap();
        opened.await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        // However it ends.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    });
    (url, open)
}

/// Given up each time another one comes free, one that takes long would never be made.
async fn a_connection_that_comes_too_late_for_its_statement_is_kept(db: &Db) {
    db.waits_for_locks().await;
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let store = PgStore::new(&pool, db.names.clone());
    store.ping().await.unwrap();
    eventually("the first one is free", async || store.connections().idle == 1).await;
    let (way, open) = closed_way(db).await;
    proxy.lead_to(&way);
    let lock = db.lock().await;
    let claiming = claiming(&store);
    db.engine_waits().await;
    let asking = {
        let store = store.clone();
        tokio::spawn(async move { store.ping().await.unwrap() })
    };
    eventually("another one is asked for", async || proxy.connections() == 2).await;
    lock.release().await;
    claiming.await.unwrap();
    soon("the first one serves both", asking).await.unwrap();
    assert!(store.connections().idle < 2, "the second one is on its way");
    open.send(()).unwrap();
    eventually("the second one is there", async || store.connections().idle == 2).await;
    assert_eq!(proxy.connections(), 2, "as many as were asked for");
    store.close().await;
}

/// A cable is pulled: one by one they would take as many limits of a statement.
async fn after_one_connection_gave_no_answer_no_other_is_believed_to_live(db: &Db) {
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let store = PgStore::new(&pool, db.names.clone());
    let lock = db.lock().await;
    let all = store.connections().most;
    let claims: Vec<_> = (0..all).map(|_| claiming(&store)).collect();
    eventually("each has a connection", async || proxy.connections() == all).await;
    lock.release().await;
    for claim in claims {
        claim.await.unwrap();
    }
    eventually("all are idle", async || store.connections().idle == all).await;
    proxy.freeze_all();
    // The limit of a statement is half as long.
    let failed = timeout(60 * SECOND, store.ping()).await.expect("the statement is given up");
    assert!(failed.unwrap_err().to_string().contains("no answer"));
    let next = timeout(10 * SECOND, store.ping()).await.expect("it has another connection");
    next.unwrap();
    eventually("the others are replaced", async || store.connections().open <= 1).await;
    store.close().await;
}
