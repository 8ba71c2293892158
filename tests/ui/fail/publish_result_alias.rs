use outbox::subscriber;

type Checked<T> = Result<T, String>;
type Perhaps = Option<u64>;

#[subscriber("orders", publish = "checked")]
async fn check(order: u64) -> Checked<u64> {
    if order > 0 { Ok(order) } else { Err("no order".into()) }
}

#[subscriber("orders", publish = "checked")]
async fn look(order: u64) -> Result<Perhaps, String> {
    Ok((order > 0).then_some(order))
}

type Invoices = Vec<u64>;

#[subscriber("orders", publish = "invoices")]
async fn bill(order: u64) -> Invoices {
    vec![order]
}

fn main() {}
