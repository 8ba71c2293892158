//! Messages that operators publish, and timers that they cancel.

use serde::Serialize;

use super::{Operator, on_desk};
use crate::error::{Result, StoreError};
use crate::publish::{Outgoing, Published, Publisher, check_name};

/// What [`Operator::cancel_timer`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "timer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CancelledTimer {
    /// The row of the timer is deleted.
    Cancelled,
    /// The timer is not cancelled, because a claim holds its row: a handler works on it, or it
    /// waits in a process for one, or that process died and no claim has taken the row since.
    Leased {
        /// The id of the row.
        id: i64,
    },
    /// No live row of the queue has the timer name: it was handled, or there was none.
    Absent,
}

impl Operator {
    /// Publishes a message in a transaction of its own. This is for operators. A program publishes
    /// in the transaction of the change that its message reports.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// use outbox::Outgoing;
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// use outbox::ops::CancelledTimer;
    ///
    /// operator.publish(Outgoing::new("orders", &7).timer_id("late")).await?;
    /// assert_eq!(operator.cancel_timer("orders", "late").await?, CancelledTimer::Cancelled);
    /// assert_eq!(operator.cancel_timer("orders", "late").await?, CancelledTimer::Absent);
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the message is refused, the table is missing, or the database fails.
    ///
    /// # Cancel safety
    /// A dropped call has either published the message or not.
    pub async fn publish(&self, message: Outgoing) -> Result<Published> {
        let table = Publisher::new(self.names.clone());
        on_desk!(self, desk => {
            let mut tx = desk.writing("publish").await?;
            let published = table.send(&mut tx, message).await?;
            tx.commit().await.map_err(StoreError::of("publish"))?;
            Ok(published)
        })
    }

    /// Deletes the row of a timer, in a transaction of its own, unless a claim holds it.
    ///
    /// # Errors
    /// When no queue or timer can have such a name, the table is missing, or the database fails.
    ///
    /// # Cancel safety
    /// A dropped call has either cancelled the timer or not.
    pub async fn cancel_timer(&self, queue: &str, timer_id: &str) -> Result<CancelledTimer> {
        check_name("queue", queue)?;
        check_name("timer", timer_id)?;
        Ok(on_desk!(self, desk => desk.cancel_timer(queue, timer_id).await)?)
    }
}
