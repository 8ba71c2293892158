//! Wakes by LISTEN, on a connection of its own. The connection is tested to deliver before it is
//! used, and whenever it has been silent for a while.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};
use sqlx::{Executor as _, Row as _};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::connect;
use super::sleepers::Sleepers;
use crate::error::StoreError;
use crate::store::names::TableNames;
use crate::store::{Wake, Wakes};

/// How often a silent connection is asked for a sign of life: a half-open socket would otherwise be
/// waited on for ever.
const PROBE_EVERY: Duration = Duration::from_secs(60);
/// How long a connection or a probe may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long it waits for a lock: less than [`ANSWER_LIMIT`]. A session that waits for a lock does
/// not notice that its client is gone, and whoever may connect can keep the locks of sleepers for
/// ever.
const PATIENCE: &str = "SELECT set_config('lock_timeout', '4s', false)
    WHERE current_setting('lock_timeout')::interval NOT BETWEEN '1ms' AND '4s'";
/// No queue has such a name: by custom queue names hold no control characters. A false match would
/// cost one probe, not a message.
const PROBE: &str = "\u{1}probe ";

/// A connection that listens, and was tested to deliver.
pub struct PgWakes {
    listener: PgListener,
    channel: String,
    sleepers: Sleepers,
    /// Queues in which there may be messages that nobody was notified of.
    unnoticed: Vec<String>,
    /// When to ask for a sign of life.
    probe_at: Instant,
    /// The text of a sign of life that was asked for.
    echo: Option<String>,
}

impl PgWakes {
    pub(super) async fn connect(pool: &PgPool, names: &TableNames) -> Result<Self, StoreError> {
        let channel = names.channel();
        let open = async {
            let mut listener = PgListener::connect_with(pool).await?;
            // A reconnect in here would hide that wakes were missed.
            listener.eager_reconnect(false);
            (&mut listener).execute(PATIENCE).await?;
            listener.listen(&channel).await?;
            Ok(listener)
        };
        let listener = match timeout(ANSWER_LIMIT, open).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                let error = connect::why(error, &pool.connect_options()).await;
                return Err(StoreError::of("listen")(error));
            }
            Err(_) => return Err(StoreError::new("listen", "no connection within 5 s", true)),
        };
        let mut wakes = Self {
            listener,
            channel,
            sleepers: Sleepers::new(names),
            unnoticed: Vec::new(),
            probe_at: Instant::now() + PROBE_EVERY,
            echo: None,
        };
        wakes.probe().await?;
        Ok(wakes)
    }

    /// Notifies itself and waits for the notification: LISTEN through a transaction-mode pooler
    /// answers "ok" and never delivers. Wakes that are read meanwhile are dropped, so the caller
    /// fetches afterwards. An old primary that takes no writes any more still delivers its own
    /// notifications, so the server is also asked whether it takes writes.
    async fn probe(&mut self) -> Result<(), StoreError> {
        let text = format!("{PROBE}{}", Uuid::new_v4());
        let (channel, payload) = (self.channel.clone(), text.clone());
        self.echo = Some(text.clone());
        let listener = &mut self.listener;
        let echo = async {
            let notify = "SELECT pg_notify($1, $2), current_setting('transaction_read_only')::bool";
            let notify = sqlx::query(notify).bind(channel).bind(payload);
            if notify.fetch_one(&mut *listener).await?.try_get(1)? {
                return Err(sqlx::Error::Protocol("the server takes no writes".into()));
            }
            loop {
                match listener.try_recv().await? {
                    Some(heard) if heard.payload() == text => return Ok(true),
                    Some(_) => {}
                    None => return Ok(false),
                }
            }
        };
        match timeout(ANSWER_LIMIT, echo).await {
            Ok(Ok(true)) => {
                self.echo = None;
                Ok(())
            }
            Ok(Ok(false)) => Err(lost()),
            Ok(Err(error)) => Err(StoreError::of("listen")(error)),
            Err(_) => {
                let why = "a notification to itself did not arrive within 5 s; a transaction-mode \
                           pooler or a standby does not deliver them";
                Err(StoreError::new("listen", why, true))
            }
        }
    }
}

fn lost() -> StoreError {
    StoreError::new("listen", "the connection was lost", true)
}

/// The answer to a statement on the connection that listens.
async fn bounded<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match timeout(ANSWER_LIMIT, statement).await {
        Ok(result) => result.map_err(StoreError::of("listen")),
        Err(_) => Err(StoreError::new("listen", "no answer within 5 s", true)),
    }
}

impl Wakes for PgWakes {
    async fn next(&mut self) -> Result<Wake, StoreError> {
        loop {
            if let Some(queue) = self.unnoticed.pop() {
                return Ok(Wake::Queue(queue));
            }
            let look_at = self.sleepers.look_at();
            if look_at.is_some_and(|at| at <= Instant::now()) {
                self.unnoticed = bounded(self.sleepers.look(&mut self.listener)).await?;
                continue;
            }
            let next = look_at.map_or(self.probe_at, |at| at.min(self.probe_at));
            match timeout_at(next, self.listener.try_recv()).await {
                Ok(Ok(Some(heard))) => {
                    self.probe_at = Instant::now() + PROBE_EVERY;
                    if self.echo.take_if(|echo| echo == heard.payload()).is_some() {
                        // The answer to a probe that was given up half-way, with the wakes that it
                        // had read.
                        return Ok(Wake::All);
                    }
                    if !heard.payload().starts_with(PROBE) {
                        return Ok(Wake::Queue(heard.payload().to_owned()));
                    }
                }
                Ok(Ok(None)) => return Err(lost()),
                Ok(Err(error)) => return Err(StoreError::of("listen")(error)),
                Err(_) if Instant::now() < self.probe_at => {}
                Err(_) => {
                    self.probe().await?;
                    self.probe_at = Instant::now() + PROBE_EVERY;
                    return Ok(Wake::All);
                }
            }
        }
    }

    async fn sleep_on(&mut self, queues: &[&str]) -> Result<(), StoreError> {
        bounded(self.sleepers.sleep_on(&mut self.listener, queues)).await
    }
}
