use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(ctx: outbox::Context) {
    let _ = ctx.id();
}

fn main() {}
