use outbox::Queue;
use outbox::testing::TestBroker;

#[derive(serde::Serialize)]
struct Order {
    id: u64,
}

static ORDERS: Queue<Order> = Queue::new("orders");

async fn place(broker: &TestBroker, order: Order) -> outbox::Result<()> {
    broker.publish(ORDERS, &order.id).await?;
    Ok(())
}

fn main() {}
