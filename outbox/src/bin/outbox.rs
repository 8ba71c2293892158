//! The command line without handlers: everything that operators do. Programs that have
//! handlers mount it by `outbox::cli::run`.

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("the program `outbox` needs a database: add the feature `postgres` or `sqlite`");

use std::process::ExitCode;

use outbox::App;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    // The line that says what was done with which letters is for whoever asks for a log; a
    // variable that is missing or misspelt is told to all but scripts, which are told what failed.
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
