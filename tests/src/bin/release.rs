//! Two releases of one program: `release URL old` and `release URL new`, until it is asked to
//! end. The new one has a queue more and a queue less, and another with other settings.

use std::io::Write;
use std::sync::Once;

use outbox::{App, Context, Outcome, Tx, subscriber};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The first handler tells the test.
fn begun() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "begun").and_then(|()| out.flush());
    });
}

/// Every fifth one fails at first, and every eleventh for good.
async fn book(
    n: i64,
    mut tx: Tx<sqlx::Postgres>,
    ctx: &Context,
    release: &str,
) -> anyhow::Result<Outcome> {
    begun();
    if n % 11 == 0 {
        return Ok(Outcome::reject("for good"));
    }
    anyhow::ensure!(n % 5 > 0 || ctx.attempts() > 0, "at first");
    let insert = "INSERT INTO done (n, queue, release) VALUES ($1, $2, $3)";
    let insert = sqlx::query(insert).bind(n).bind(ctx.queue()).bind(release);
    insert.execute(&mut *tx).await?;
    Ok(Outcome::Ack)
}

macro_rules! release {
    ($release:ident, $($name:ident = ($($options:tt)*)),+) => {
        mod $release {
            use super::*;

            $(#[subscriber($($options)*, min_poll = "100ms", max_poll = "100ms")]
            pub async fn $name(n: i64, tx: Tx<sqlx::Postgres>, ctx: Context) -> anyhow::Result<Outcome> {
                book(n, tx, &ctx, stringify!($release)).await
            })+

            pub fn subscribers() -> Vec<outbox::Subscriber> {
                vec![$($name::subscriber()),+]
            }
        }
    };
}

release! {
    old,
    kept = ("kept", retry = Constant("50ms")),
    changed = ("changed", max_workers = 1, fetch_batch = 2, lease_ttl = "5s", retry = Constant("50ms")),
    dropped = ("dropped", retry = Constant("50ms"))
}

release! {
    new,
    kept = ("kept", retry = Constant("50ms")),
    changed = ("changed", max_workers = 8, lease_ttl = "20s", retry = Linear(initial = "20ms", step = "20ms")),
    added = ("added", retry = Constant("50ms"))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, release] = &words[..] else { anyhow::bail!("two words") };
    let options = url.parse::<PgConnectOptions>()?.application_name(release);
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
    let subscribers = if release == "old" { old::subscribers() } else { new::subscribers() };
    Ok(App::postgres(pool).dlq("outbox_dlq").only(subscribers).run().await?)
}
