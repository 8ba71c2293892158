//! The app under test, on the public API, as a process of its own.

mod acts;
mod handlers;
mod told;

use std::io::Read;
use std::time::Duration;

use anyhow::Result;
use outbox::App;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tracing_subscriber::layer::SubscriberExt;

use crate::args::Seat;
use crate::journal::{EVENTS, Journal, RUNS};
use acts::RUN;
use told::{Log, TOLD, record, tell};

pub async fn work(seat: Seat) -> Result<()> {
    let opened = Journal::open(&seat.folder, RUNS, &seat.name)?;
    let _ = RUN.set(opened);
    let opened = Journal::open(&seat.folder, EVENTS, &seat.name)?;
    let _ = TOLD.set(opened);
    end_with_parent();
    std::panic::set_hook(Box::new(|_| {}));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Log))?;
    let postgres = seat.url.starts_with("postgres");
    let app = if postgres {
        let options: PgConnectOptions = seat.url.parse()?;
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options.application_name(&seat.name));
        App::postgres(pool)
    } else {
        App::sqlite(outbox::sqlite::connect(&seat.url).await?)
    };
    app.dlq("outbox_dlq")
        .only(handlers::all(postgres))
        .drain_timeout(Duration::from_secs(6))
        .recorder(record)
        .on_startup(|| async {
            tell("ready");
            anyhow::Ok(())
        })
        .run()
        .await?;
    Ok(())
}

/// A process that is left over would go on with another run's work.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
}
