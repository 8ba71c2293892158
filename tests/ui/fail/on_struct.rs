use outbox::subscriber;

#[subscriber("orders")]
struct Confirm;

fn main() {}
