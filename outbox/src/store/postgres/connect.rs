//! Connecting with the options of the user's pool. They are read anew for each connection, because
//! a service may replace its password or token while it runs. A caller that waits for a new
//! connection takes any other one that comes free meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use tokio::time::{Instant, sleep, timeout};

use super::kept::One;
use super::{CONNECT_LIMIT, PgStore, STATEMENT_LIMIT};
use crate::error::{StoreError, Told};
use crate::unpoisoned::Locked as _;

/// How soon a caller that waits for a new connection sees that another one is free.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long the server is asked why nobody can connect to it.
const ASKED: Duration = Duration::from_secs(1);
const CONNECT: &str = "connect to PostgreSQL";

/// How many statements each connection of the engine keeps prepared: more than there are. Where the
/// user's pool keeps none, sqlx would leave every one of them on the server.
const STATEMENTS: usize = 100;

/// Where the options of new connections come from. A service whose password or token is replaced
/// gives the new one to its own pool, by `set_connect_options`, and knows of no other pool.
pub(super) struct Source {
    /// Asked for its options, and never for a connection.
    users: PgPool,
    /// The user's options from which those of the engine's pool were made.
    known: Mutex<Arc<PgConnectOptions>>,
}

fn engines(users: &PgConnectOptions) -> PgConnectOptions {
    users.clone().statement_cache_capacity(STATEMENTS)
}

impl Source {
    pub(super) fn new(users: &PgPool) -> Self {
        Self { users: users.clone(), known: Mutex::new(users.connect_options()) }
    }

    /// The options that the engine's pool begins with.
    pub(super) fn first(&self) -> PgConnectOptions {
        engines(&self.known.locked())
    }

    /// Hands the options to the engine's pool if they have changed, and returns that pool's.
    fn refresh(&self, pool: &PgPool) -> Arc<PgConnectOptions> {
        let mut known = self.known.locked();
        let now = self.users.connect_options();
        if !Arc::ptr_eq(&known, &now) {
            pool.set_connect_options(engines(&now));
            *known = now;
        }
        pool.connect_options()
    }
}

impl PgStore {
    /// The options for the next connection. Connections that are open stay as they are.
    pub(super) fn options(&self) -> Arc<PgConnectOptions> {
        self.0.source.refresh(&self.0.pool)
    }

    /// The engine's pool, which opens its next connection with these options.
    pub(super) fn pool(&self) -> &PgPool {
        self.options();
        &self.0.pool
    }

    /// Connects once, and tries again for `patience` while the error may pass. A pool would wait
    /// longer, and then only say that it waited.
    pub async fn reach(&self, patience: Duration) -> Result<PgConnection, StoreError> {
        let options = self.options();
        let give_up = Instant::now() + patience;
        loop {
            let failed = match timeout(CONNECT_LIMIT, options.connect()).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => {
                    let lasting = is_of_tls(&error);
                    let failed = unreached(&options, error);
                    if lasting {
                        return Err(failed);
                    }
                    failed
                }
                Err(_) => silent(&options),
            };
            if !failed.transient || Instant::now() >= give_up {
                return Err(failed);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Takes a connection that is kept, or waits for one from the pool.
    ///
    /// - A caller that waits for a new connection, for which the server may have no room, does not
    ///   see that another has come free. So it looks for a free one meanwhile.
    /// - A new connection that then comes too late goes to the pool. If it were given up half-way
    ///   each time, one that takes long would never be made.
    /// - A caller that waits for a server that is away begins anew now and then. sqlx waits ever
    ///   longer between its tries, up to a fifth of its time limit, and would sleep on when the
    ///   server is back.
    pub(super) async fn acquire(&self) -> Result<One, sqlx::Error> {
        let _waiting = match self.0.kept.take() {
            Ok(one) => return Ok(one),
            Err(waiting) => waiting,
        };
        let give_up = Instant::now() + STATEMENT_LIMIT;
        let mut acquiring = Box::pin(self.pool().acquire());
        loop {
            match timeout(LOOK_AGAIN, &mut acquiring).await {
                Ok(Err(sqlx::Error::PoolTimedOut)) if Instant::now() < give_up => {
                    acquiring = Box::pin(self.pool().acquire());
                }
                Ok(Err(error)) => return Err(why(error, &self.options()).await),
                Ok(Ok(acquired)) => return Ok(One::fresh(acquired)),
                Err(_) => {
                    if let Some(free) = self.0.pool.try_acquire() {
                        tokio::spawn(acquiring);
                        return Ok(One::fresh(free));
                    }
                }
            }
        }
    }
}

/// Why a pool gave no connection. Its own error may only say that it waited: then a connection of
/// its own tells for what.
pub(super) async fn why(error: sqlx::Error, options: &PgConnectOptions) -> sqlx::Error {
    if !matches!(error, sqlx::Error::PoolTimedOut) {
        return error;
    }
    match timeout(ASKED, options.connect()).await {
        Ok(Err(refused)) => refused,
        // Or the server takes connections again.
        Ok(Ok(_)) | Err(_) => error,
    }
}

/// A connection that was refused, and where it was to lead.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {}{hint}", Told(source))]
struct Unreached {
    place: String,
    source: sqlx::Error,
    hint: &'static str,
}

/// The driver's error names no feature, and the feature is one of ours.
const WITHOUT_TLS: &str = "; outbox has it with its feature `tls`";

pub(super) fn unreached(options: &PgConnectOptions, error: sqlx::Error) -> StoreError {
    let failed = StoreError::of(CONNECT)(error);
    match failed.source.downcast::<sqlx::Error>() {
        Ok(source) => {
            let lacks = source.to_string().contains("built without TLS");
            let hint = if lacks { WITHOUT_TLS } else { "" };
            let source = Unreached { place: place(options), source: *source, hint };
            StoreError { source: source.into(), ..failed }
        }
        Err(source) => StoreError { source, ..failed },
    }
}

/// No answer came in the time that there is for it.
pub(super) fn silent(options: &PgConnectOptions) -> StoreError {
    StoreError::new(CONNECT, place(options) + ": no answer within 5 s", true)
}

/// Where the server is.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// A certificate, or a server without TLS: the next second does not mend that.
fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        // This is how rustls refuses a certificate.
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pool_that_keeps_no_statements_does_not_speak_for_the_engine() {
        let none = |host| PgConnectOptions::new().host(host).statement_cache_capacity(0);
        let kept = |options: &PgConnectOptions| {
            let url = options.to_url_lossy();
            url.query_pairs().any(|(name, n)| name == "statement-cache-capacity" && n == "100")
        };
        let users = PgPool::connect_lazy_with(none("a"));
        let source = Source::new(&users);
        assert!(kept(&source.first()));
        let pool = PgPool::connect_lazy_with(source.first());
        users.set_connect_options(none("b"));
        let next = source.refresh(&pool);
        assert!(kept(&next) && kept(&pool.connect_options()));
        assert_eq!((next.get_host(), pool.connect_options().get_host()), ("b", "b"));
        assert!(!kept(&users.connect_options()), "the user's is left alone");
    }
}
