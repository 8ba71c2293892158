use outbox::subscriber;
use std::rc::Rc;

#[subscriber("orders")]
async fn confirm(_: u64) {
    let shared = Rc::new(5);
    std::future::ready(()).await;
    drop(shared);
}

fn main() {}
