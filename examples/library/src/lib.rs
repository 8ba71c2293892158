//! Handlers in a crate of their own, for the example `library_handlers`.

use outbox::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct User {
    name: String,
}

#[subscriber("users")]
async fn welcome(user: User, State(greeting): State<String>) {
    println!("{greeting}, {}!", user.name);
}
