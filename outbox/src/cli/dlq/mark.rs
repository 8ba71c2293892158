//! `dlq resolve` and `dlq ignore`.

use clap::Args;
use serde_json::json;

use super::super::confirm::Consent;
use super::super::interrupted::until_interrupted;
use super::left::{Left, ahead};
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
        let bar = context.out.progress(open);
        let note = self.note.as_deref();
        let mut marked = 0;
        let work = letters.mark(&filter, status, note, open, |so_far| {
            marked = so_far;
            bar.set_position(so_far);
        });
        let ended = until_interrupted(work).await;
        bar.finish_and_clear();
        if marked == 0 {
            ended?;
        } else if let Err(trouble) = ended {
            let told = shown::half_way(marked, status.as_str(), open);
            let value = json!({
                status.as_str(): marked, "whole": false, "locked": 0, "ahead": ahead,
                "letters": left.value(),
            });
            context.out.result(&value, || told);
            return Err(trouble);
        }
        // Somebody else may have dealt with some of them.
        let locked = match open.saturating_sub(marked) {
            0 => 0,
            most => letters.count(&filter).await?.min(most),
        };
        let named = self.selection.ids().len() as u64;
        let nothing = none_open(&which, &filter, open, ahead);
        let value = json!({
            status.as_str(): marked, "whole": true, "locked": locked, "ahead": ahead,
            "letters": left.value(),
        });
        context.out.result(&value, || {
            let many = shown::letters(marked);
            left.behind(match locked {
                1.. => format!("{many} {status}; {}", shown::locked(locked)),
                0 => format!("{many} {status}{nothing}"),
            })
        });
        let missed = open == 0 && ahead > 0;
        Ok(if missed || locked > 0 || marked < named { Done::Bad } else { Done::Good })
    }
}
