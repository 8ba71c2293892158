//! The command line without handlers: everything that operators do. Programs that have
//! handlers mount it by `outbox::cli::run`.

use std::process::ExitCode;

use outbox::App;

#[tokio::main]
async fn main() -> ExitCode {
    outbox::cli::run(App::from_env()).await
}
