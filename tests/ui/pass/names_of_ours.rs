//! Types of the user's with names of ours.
#![deny(warnings)]

use outbox::subscriber;

mod warehouse {
    #[derive(serde::Deserialize)]
    pub struct Batch;
    #[derive(serde::Deserialize)]
    pub struct State;
    #[derive(serde::Deserialize)]
    pub struct Context;
}

use warehouse::Context as Surroundings;

#[subscriber("batches")]
async fn batch(_: warehouse::Batch) {}

#[subscriber("several", batch = 10)]
async fn several(_: Vec<warehouse::Batch>) {}

#[subscriber("states")]
async fn state(_: warehouse::State) {}

#[subscriber("contexts")]
async fn context(_: Surroundings, _: outbox::Context) {}

fn main() {}
