use outbox::testing::TestBroker;

async fn forget(broker: &TestBroker) -> outbox::Result<bool> {
    broker.cancel_timer(7, "reminder").await
}

fn main() {}
