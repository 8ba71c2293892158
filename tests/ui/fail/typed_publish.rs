use outbox::{PublishError, Queue};

static ORDERS: Queue<u64> = Queue::new("orders");

async fn place(tx: &mut sqlx::PgTransaction<'_>, order: String) -> Result<(), PublishError> {
    outbox::publish(tx, ORDERS, &order).await?;
    Ok(())
}

fn main() {}
