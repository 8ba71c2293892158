use outbox::subscriber;

struct Confirm;

#[subscriber("orders")]
impl Confirm {
    pub fn confirm() {}
}

fn main() {}
