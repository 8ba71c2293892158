use std::rc::Rc;

use outbox::{Bytes, Context, State, subscriber};

#[subscriber("orders", publish = "confirmed", timeout = "1s")]
fn confirm(order: &str, ctx: Context, State(limit): State<usize>) -> Result<Option<String>, String> {
    // Nothing of a plain fn has to be `Send` but what it is given.
    let order = Rc::new(order);
    if ctx.cancelled().is_cancelled() || order.len() > limit {
        return Err("too late, or too long".into());
    }
    Ok(Some(order.to_uppercase()))
}

#[subscriber("raw")]
fn raw(bytes: &[u8]) {
    println!("{}", bytes.len());
}

#[subscriber("shared")]
pub fn shared(bytes: Bytes) -> std::io::Result<()> {
    println!("{}", bytes.len());
    Ok(())
}

pub(super) fn main() {
    raw(b"still a fn");
    assert_eq!(raw::subscriber().queues(), ["raw"]);
    assert_eq!(confirm::subscriber().name(), "confirm");
}
