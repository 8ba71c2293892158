//! An app as the environment describes it, for the tests to start and to signal.

use std::io::Write;

use outbox::{App, Context, subscriber};

/// Whole lines, at once: the test waits for them.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[subscriber("quick", min_poll = "1h", max_poll = "1h")]
async fn quick(n: u64) {
    say(&format!("handled {n}"));
}

/// Ends half a second after it began.
#[subscriber("slow")]
async fn slow(n: u64) {
    say(&format!("started {n}"));
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    say(&format!("finished {n}"));
}

#[subscriber("endless", max_workers = 1)]
async fn endless(n: u64, _: Context) {
    say(&format!("started {n}"));
    std::future::pending::<()>().await;
}

/// Ends never, and cannot be dropped.
#[subscriber("stuck")]
fn stuck(n: u64) {
    say(&format!("started {n}"));
    loop {
        std::thread::park();
    }
}

#[subscriber("broken", retry = NoRetry)]
async fn broken(_: u64) -> Result<(), &'static str> {
    Err("broken")
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut app = App::from_env();
    if std::env::var_os("STUCK_AT_THE_START").is_some() {
        // Goes on after the start is given up, and the runtime waits for it.
        app = app.on_startup(|| async { tokio::task::spawn_blocking(|| stuck(0)).await });
    }
    let ran = app.run().await;
    tracing::info!("the app has drained");
    ran
}
