//! Names that the macro uses too.
#![deny(warnings)]
#![allow(dead_code)]
#![allow(clippy::needless_borrows_for_generic_args, reason = "a queue is named by both")]

use outbox::{
    Batch, BatchOutcome, Bytes, Encoded, Json, MessagePack, Outcome, Outgoing, Queue, State, Tx,
    subscriber,
};
use serde::{Deserialize, Serialize};

struct Option;
struct Result;
mod std {}
mod tokio {}

#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    id: i64,
}

static ORDERS: Queue<Order> = Queue::new("orders");

#[subscriber(ORDERS, batch = 100, batch_wait = "50ms", max_workers = 2)]
async fn confirm(orders: Vec<Order>, State(limit): State<i64>) -> Vec<Outcome> {
    let each = |order: &Order| if order.id > limit { Outcome::Nack } else { Outcome::Ack };
    orders.iter().map(each).collect()
}

#[subscriber(["a", "b"], batch = 10)]
pub(crate) async fn named(orders: Batch<Order>, _tx: Tx<sqlx::Sqlite>) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    for item in orders {
        if item.message.id < 0 {
            outcome.set(&item.context, Outcome::reject("no order"));
        }
    }
    outcome
}

#[subscriber("c", batch = 10)]
async fn fallible(_: Vec<Order>) -> ::std::result::Result<(), String> {
    Ok(())
}

#[subscriber("d", batch = 10, max_workers = 2, timeout = "1s")]
fn plain(orders: Vec<Order>, State(limit): State<i64>) -> Vec<Outcome> {
    let each = |order: &Order| if order.id > limit { Outcome::Nack } else { Outcome::Ack };
    orders.iter().map(each).collect()
}

// Nothing of a plain fn has to be `Send` but what it is given.
#[subscriber("e", batch = 10, publish = ORDERS)]
fn returning(orders: Batch<Order>) -> Vec<::std::result::Result<::std::option::Option<Order>, String>> {
    let orders = ::std::rc::Rc::new(orders);
    orders.iter().map(|order| Ok(Some(Order { id: order.message.id }))).collect()
}

#[subscriber("f", batch = 10, publish = "z")]
async fn fallible_returning(orders: Vec<Order>) -> ::std::result::Result<Vec<Vec<Outgoing>>, String> {
    Ok(orders.iter().map(|order| vec![Outgoing::new(&ORDERS, order)]).collect())
}

#[subscriber(ORDERS, batch = 10)]
async fn bytes(_: Vec<Bytes>) {}

#[subscriber(ORDERS, batch = 10)]
fn each_bytes(_: Batch<outbox::Bytes>, State(_): State<i64>) {}

#[subscriber(ORDERS, batch = 10)]
async fn json(_: Batch<Json<Order>>) {}

#[subscriber(ORDERS, batch = 10)]
async fn encoded(_: Vec<Encoded<MessagePack, Order>>) {}

pub(super) fn main() {
    let _ = (plain::subscriber(), returning::subscriber(), fallible_returning::subscriber());
    assert_eq!(confirm::subscriber().queues(), ["orders"]);
    assert_eq!(named::subscriber().queues(), ["a", "b"]);
    assert_eq!(fallible::subscriber().name(), "fallible");
}
