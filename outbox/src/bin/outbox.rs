//! The command line without handlers: everything that operators do. Programs that have
//! handlers mount it by `outbox::cli::run`.

use std::process::ExitCode;

use outbox::App;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    // The line that says what was done with which letters is for whoever asks for a log; a
    // variable that is missing or misspelt is told to all but scripts.
    let filter = if std::env::var_os("RUST_LOG").is_some() {
        EnvFilter::from_default_env()
    } else if std::env::args_os().any(|one| one == "--json") {
        EnvFilter::new("off")
    } else {
        EnvFilter::new("outbox=warn")
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    outbox::cli::run(App::from_env()).await
}
