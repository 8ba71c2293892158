#![deny(warnings, missing_docs)]
//! `publish` with every form of returned value.

use outbox::{Outgoing, Subscriber, subscriber};
use std::result::Result as Renamed;

const LATER: &str = "later";

#[subscriber("a", publish = "z")]
async fn value(id: i64) -> i64 { id }

#[subscriber("b", publish = LATER)]
async fn result(id: i64) -> std::result::Result<i64, std::num::ParseIntError> { Ok(id) }

#[subscriber("c", publish = String::from("z"))]
async fn option_of_vec(id: i64) -> Result<Option<Vec<i64>>, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Some(vec![id]))
}

#[subscriber("d", publish = "z")]
async fn chosen(id: i64) -> Vec<Outgoing> { vec![Outgoing::new("e", &id)] }

macro_rules! returning {
    ($name:ident, $payload:ty, $returned:ty, $option:ident = $value:literal) => {
        #[allow(clippy::useless_conversion)]
        #[subscriber("f", publish = "z", $option = $value)]
        async fn $name(payload: $payload) -> Result<$returned, String> { Ok(payload.into()) }
    };
}
returning!(grouped, Vec<i64>, Vec<i64>, batch = 10);
returning!(grouped_outgoing, i64, Option<i64>, max_workers = 2);

pub(super) fn main() {
    let all: [fn() -> Subscriber; 4] =
        [value::subscriber, result::subscriber, option_of_vec::subscriber, chosen::subscriber];
    let _ = (all, Renamed::<(), ()>::Ok(()));
}
