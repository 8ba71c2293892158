//! The command line without handlers, for everything that operators do. A program that has handlers
//! mounts it by `outbox::cli::run`.

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("the program `outbox` needs a database: add the feature `postgres` or `sqlite`");

use std::process::ExitCode;

use outbox::App;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    // The log line that says what was done to which letters is for whoever asks for a log. All are
    // told of a variable that is missing or misspelt, except scripts: they are told what failed.
    let filter = if std::env::var_os("RUST_LOG").is_some() {
        EnvFilter::from_default_env()
    } else if std::env::args_os().any(|one| one == "--json") {
        EnvFilter::new("outbox=error")
    } else {
        EnvFilter::new("outbox=warn")
    };
    // A line that cannot be written ends no command half-way, as a panic would.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .init();
    outbox::cli::run(App::from_env()).await
}
