use outbox::{Outgoing, Publisher};

fn order(publisher: &Publisher) -> Outgoing {
    publisher.message(7, "an order")
}

fn main() {}
