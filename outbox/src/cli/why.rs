//! `why`: why a row is where it is.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;

use super::output::printable;
use super::{Context, Done, Trouble};
use crate::ops::{Why as Answered, WhyOptions, WhyRow};

/// Say why a row is where it is.
///
/// It may be leased, paused, not due yet, locked, read by nobody, a dead letter, gone, and so on.
/// Exits with 1 if no message ever had the id.
#[derive(Debug, Args)]
pub(super) struct Why {
    /// The id of the row, as `publish` and the log give it.
    #[arg(allow_negative_numbers = true)]
    id: i64,
    /// Watch a lease for this long, such as `30s`, to see whether its process still extends it.
    /// It does so at the latest when half of the lease is over.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    watch_lease: Option<Duration>,
    /// Look for the row among all dead letters, not only the newest 100,000.
    #[arg(long)]
    all_letters: bool,
}

impl Why {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let mut options = WhyOptions::default().with_handlers_of(&context.app);
        options = options.watching(self.watch_lease.unwrap_or_default());
        if self.all_letters {
            options = options.all_letters();
        }
        let operator = context.operator()?;
        let why = operator.why(self.id, &options);
        let why = context.out.waiting("looking", why).await?;
        context.out.result(&why, || text(context, &why));
        Ok(if why.is_known() { Done::Good } else { Done::Bad })
    }
}

fn text(context: &Context, why: &Answered) -> String {
    let mut text = match &why.row {
        None => format!("row {}:\n", why.id),
        Some(WhyRow { queue, created_at, attempts, deliveries, timer_id }) => {
            let timer = timer_id.as_ref().map(|name| format!(", timer {}", printable(name)));
            format!(
                "row {} of the queue {}{}, published at {}, deliveries: {deliveries}, failed: \
                 {attempts}\n",
                why.id,
                printable(queue),
                timer.unwrap_or_default(),
                crate::ops::rfc3339(*created_at),
            )
        }
    };
    for answer in &why.answers {
        let told = answer.told();
        let _ = writeln!(text, "\n{}", context.out.strong(&printable(&told.what)));
        let _ = writeln!(text, "  means  {}", printable(&told.means));
        let _ = writeln!(text, "  do     {}", printable(&told.next));
    }
    text
}
