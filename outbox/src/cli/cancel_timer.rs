//! `cancel-timer`: a message that is not to be handled after all.

use clap::Args;

use super::output::printable;
use super::{Context, Done, Trouble, queues};
use crate::ops::CancelledTimer;

/// Delete the row of a timer, unless a claim holds it.
///
/// A claim holds the row while a handler works on it, while it waits in a process for a handler,
/// and when its process died and no claim has taken it since. Exits with 1 if nothing was deleted.
#[derive(Debug, Args)]
pub(super) struct CancelTimer {
    /// The queue.
    queue: String,
    /// The timer name.
    name: String,
}

impl CancelTimer {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let cancelled = operator.cancel_timer(&self.queue, &self.name).await?;
        let (queue, name) = (printable(&self.queue), printable(&self.name));
        context.out.result(&cancelled, || match cancelled {
            CancelledTimer::Cancelled => format!("the timer {name} of {queue} is cancelled"),
            CancelledTimer::Leased { id } => format!(
                "the timer {name} of {queue} is not cancelled: a claim holds its row {id}; see \
                 `outbox why {id}`"
            ),
            CancelledTimer::Absent => {
                format!("no row of {queue} has the timer name {name}: it was handled, or never set")
            }
        });
        if cancelled == CancelledTimer::Absent {
            queues::doubt(context, &operator, std::slice::from_ref(&self.queue)).await;
        }
        Ok(if cancelled == CancelledTimer::Cancelled { Done::Good } else { Done::Bad })
    }
}
