use outbox::{App, Context};

async fn layer(_: Context) {}

fn main() {
    let _ = App::from_env().layer(layer);
}
