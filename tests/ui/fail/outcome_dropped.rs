#![deny(unused_must_use)]

use outbox::{Outcome, subscriber};

#[subscriber("payments")]
async fn pay(amount: i64) {
    if amount < 0 {
        Outcome::reject("negative");
    }
}

fn main() {}
