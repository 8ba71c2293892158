use outbox::{Context, FromContext, Headers, subscriber};

struct Tenant(String);

impl FromContext for Tenant {
    type Rejection = &'static str;

    async fn from_context(ctx: &Context) -> Result<Self, Self::Rejection> {
        Ok(Tenant(ctx.headers().get("tenant").ok_or("no tenant")?.to_owned()))
    }
}

#[subscriber("orders", batch = 10)]
async fn wrong(orders: Vec<i64>, tenant: Tenant, headers: Option<Headers>) {
    println!("{} {} {}", orders.len(), tenant.0, headers.is_some());
}

fn main() {}
