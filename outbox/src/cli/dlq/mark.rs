//! `dlq resolve` and `dlq ignore`.

use clap::Args;

use super::super::confirm::Consent;
use super::left::{Change, Left, ahead};
use super::selection::{Selection, none_open, so_far, told};
use super::{Context, Done, Trouble, shown};
use crate::dlq::Status;

#[derive(Debug, Args)]
pub(super) struct Mark {
    #[command(flatten)]
    selection: Selection,
    /// Every open letter.
    #[arg(long)]
    all: bool,
    /// Why, for whoever looks at them later.
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

impl Mark {
    pub(super) async fn run(
        self,
        context: &Context,
        status: Status,
        verb: &str,
    ) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        let filter = self.selection.filter_or_all(letters, self.all).await?;
        let which = told(&filter);
        // As many letters as are counted here, and no more: others may be opened again meanwhile.
        let (asked, filter) = (filter.open(), letters.open_letters(&filter).await?);
        let open = letters.count(&filter).await?;
        let ahead = ahead(context, letters, &[asked]).await?;
        let left = Left::of(letters, &filter, |one| one == Status::Failed).await?;
        if open > 1 {
            let many = shown::letters(open);
            self.consent.or_else(&format!("{verb} {many}{which}"), so_far(&filter))?;
        }
        let named = self.selection.ids().len();
        let nothing = none_open(&which, &filter, open, ahead);
        let bar = &context.out.progress(open);
        let note = self.note.as_deref();
        let work = letters.mark(&filter, status, note, open, |so_far| bar.set_position(so_far));
        let words = [status.as_str(); 2];
        let change = Change { context, words, count: open, bar, ahead, left, named };
        let done = change.end(Box::pin(work), letters.count(&filter), &nothing).await?;
        let missed = open == 0 && ahead > 0;
        Ok(if missed { Done::Bad } else { done })
    }
}
