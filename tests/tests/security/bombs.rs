//! Payload bombs: each is exactly one dead letter, byte for byte what was published, and
//! reading it takes no more than three times what a payload may hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use outbox::dlq::{Filter, Replay};
use outbox::ops::PeekOptions;
use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{Bytes, Context, Outgoing, Publisher, Subscriber, subscriber};
use outbox_tests::bombs::{Bomb, bombs};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use serde::Deserialize;

on_both!(each_bomb_is_one_dead_letter_byte_for_byte, a_payload_of_50_mb_is_kept_byte_for_byte);

/// No bomb is one.
#[derive(Deserialize)]
struct Order {
    #[expect(dead_code, reason = "no bomb has it")]
    id: i64,
}

#[subscriber("orders", retry = NoRetry)]
async fn order(_: Order) {}

#[subscriber("many orders", retry = NoRetry)]
async fn orders(_: Vec<Order>) {}

/// In memory the engine, the store and the decoder run on this one thread, where every
/// allocation is counted. What any message takes is not the payload's.
fn takes_at_most(most: usize, bombs: impl IntoIterator<Item = Bomb>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taken = |bomb: &Bomb, queue: &str| {
        let broker = TestBroker::with([order::subscriber(), orders::subscriber()]);
        let published = broker.publish_with(bomb.message(queue));
        let info = allocation_counter::measure(|| drop(runtime.block_on(published)));
        assert!(broker.rows().is_empty(), "{}", bomb.name);
        let [letter] = &broker.dlq_rows()[..] else { panic!("{}: not one letter", bomb.name) };
        assert_eq!(letter.error_kind.as_deref(), Some("decode"), "{}", bomb.name);
        assert!(letter.payload == bomb.payload, "{}", bomb.name);
        bomb.payload.len() as u64 + info.bytes_max
    };
    let mut took = Vec::new();
    for bomb in bombs {
        let empty = Bomb { name: "nothing".into(), payload: Bytes::new(), ..bomb };
        for queue in ["orders", "many orders"] {
            let peak = taken(&bomb, queue).saturating_sub(taken(&empty, queue));
            took.push((peak, format!("{} in {queue}", bomb.name)));
        }
    }
    took.sort();
    took.reverse();
    took.truncate(8);
    println!("{took:#?}");
    assert!(took[0].0 <= most as u64, "{took:#?}");
}

fn all_of(content_type: &str, size: usize) -> impl Iterator<Item = Bomb> {
    bombs(size).into_iter().filter(move |bomb| bomb.content_type == content_type)
}

const MIB: usize = 1 << 20;

#[test]
fn a_bomb_of_json_takes_three_times_its_size_at_most() {
    takes_at_most(3 * 2 * MIB, all_of("application/json", 2 * MIB));
}

#[test]
fn a_bomb_of_messagepack_takes_three_times_its_size_at_most() {
    takes_at_most(3 * 2 * MIB, all_of("application/msgpack", 2 * MIB));
}

/// However small: the limit there is one of values. It is reached by the first ones, and
/// not by the second ones.
#[test]
fn a_bomb_of_cbor_takes_three_times_the_largest_payload_at_most() {
    takes_at_most(3 * 16 * MIB, all_of("application/cbor", 3 * MIB));
    takes_at_most(3 * 16 * MIB, all_of("application/cbor", MIB / 2));
}

/// The worst of them: a text in pieces, which is put together, and quoted by the error.
#[test]
fn a_bomb_of_cbor_of_the_largest_size_takes_three_times_that_at_most() {
    let text = [b"\x7f", &b"\x617".repeat(8 * MIB - 1)[..], b"\xff"].concat();
    let name = "a text in small pieces".to_owned();
    let bomb = Bomb { name, content_type: "application/cbor", payload: text.into() };
    takes_at_most(3 * 16 * MIB, [bomb]);
}

/// Reads its message as an order. A replay says what it saw, and is done.
fn reader(queue: &str, seen: &Arc<Mutex<BTreeMap<String, Bytes>>>) -> Subscriber {
    let seen = Arc::clone(seen);
    let read = move |context: Context| {
        if context.headers().replays() > 0 {
            let name = context.headers().get("bomb").unwrap().to_owned();
            seen.lock().unwrap().insert(name, context.payload_bytes());
            return std::future::ready(Ok(()));
        }
        std::future::ready(context.decode::<Order>().map(drop))
    };
    Subscriber::new("reader", queue, read).retry(NoRetry)
}

async fn each_bomb_is_one_dead_letter_byte_for_byte(db: &Db) {
    go_round(db, &bombs(64 << 10), &Publisher::new(db.names.clone())).await;
}

async fn a_payload_of_50_mb_is_kept_byte_for_byte(db: &Db) {
    let payload = b"\x9f".repeat(50 << 20).into();
    let bomb = Bomb { name: "50 MB".into(), content_type: "application/cbor", payload };
    go_round(db, &[bomb], &Publisher::new(db.names.clone()).max_payload(50 << 20)).await;
}

/// Published, failed, kept, looked at, replayed, handled.
async fn go_round(db: &Db, bombs: &[Bomb], publisher: &Publisher) {
    let seen = Arc::default();
    let running = db.app().only([reader("orders", &seen)]).start().await.unwrap();
    for bomb in bombs {
        let message = bomb.message("orders").header("bomb", &*bomb.name);
        match &db.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                publisher.send(&mut tx, message).await.unwrap();
                tx.commit().await.unwrap();
            }
            Pool::Sqlite(pool) => {
                let mut tx = outbox::sqlite::begin(pool).await.unwrap();
                publisher.send(&mut tx, message).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    }
    db.drained().await;
    let operator = outbox_tests::roles::operator(db, db.names.clone());
    let letters = operator.dead_letters();
    assert_eq!(letters.count(&Filter::new()).await.unwrap(), bombs.len() as u64);
    let page = letters.list(&Filter::new(), None, 1000).await.unwrap();
    for letter in page.letters {
        let text = letter.last_exception.as_deref().unwrap_or_default();
        assert!(text.starts_with("the payload is not the expected"), "{text}");
        let opened = letters.show(letter.id).await.unwrap().unwrap();
        let name = opened.headers().unwrap().get("bomb").unwrap().to_owned();
        let bomb = bombs.iter().find(|bomb| bomb.name == name).unwrap();
        assert!(opened.payload == bomb.payload, "{name} is another one as a letter");
    }
    operator.pause(&["orders"], None).await.unwrap();
    letters.replay(&Filter::new(), &Replay::new()).await.unwrap();
    // Whoever looks at them meanwhile is none the worse for it.
    let peeked = operator.peek("orders", &PeekOptions::default().rows(1000)).await.unwrap();
    assert_eq!(peeked.len(), bombs.len());
    operator.resume(&["orders"]).await.unwrap();
    eventually("each was seen again", async || seen.lock().unwrap().len() == bombs.len()).await;
    db.drained().await;
    for bomb in bombs {
        let seen = seen.lock().unwrap();
        assert!(seen[&bomb.name] == bomb.payload, "{} is another one to its handler", bomb.name);
    }
    db.send(Outgoing::new("orders", &serde_json::json!({ "id": 7 }))).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(letters.count(&Filter::new()).await.unwrap(), bombs.len() as u64, "none is new");
}
