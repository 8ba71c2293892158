use outbox::subscriber;

struct Order;

#[subscriber("orders")]
async fn confirm(_: Vec<Order>) {}

fn main() {}
