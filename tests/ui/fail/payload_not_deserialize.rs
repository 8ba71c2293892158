use outbox::subscriber;

struct Order;

#[subscriber("orders")]
async fn confirm(_: Order) {}

fn main() {}
