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

/// Ends never, and blocks the thread that the loops run on.
#[subscriber("blocks")]
async fn blocks(n: u64) {
    stuck(n);
}

#[subscriber("broken", retry = NoRetry)]
async fn broken(_: u64) -> Result<(), &'static str> {
    Err("broken")
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn main() -> outbox::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut runtime = if is_set("ONE_THREAD") {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    runtime.enable_all().build().expect("a runtime").block_on(run())
}

async fn run() -> outbox::Result<()> {
    let mut app = App::from_env();
    if is_set("STUCK_AT_THE_START") {
        // Goes on after the start is given up, and the runtime waits for it.
        app = app.on_startup(|| async {
            let stuck = tokio::task::spawn_blocking(|| stuck(0));
            if is_set("FAILS_AT_THE_START") { Err("no start") } else { stuck.await.or(Ok(())) }
        });
    }
    let ran = app.run().await;
    tracing::info!("the app has drained");
    ran
}
