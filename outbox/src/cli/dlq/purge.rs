//! `dlq purge`: letters are deleted for good.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::super::confirm::Consent;
use super::left::{Change, Left, ahead};
use super::selection::{Selection, When, so_far, told};
use super::{Context, Done, Trouble, shown};
use crate::dlq::{Status, to_purge};

/// Delete letters for good.
///
/// Deletes resolved and ignored ones, and open ones only with `--status failed`.
#[derive(Debug, Args)]
pub(super) struct Purge {
    #[command(flatten)]
    selection: Selection,
    /// Every letter that is resolved or ignored, or that has the --status.
    #[arg(long)]
    all: bool,
    /// Only letters that failed longer ago than this, such as `30d`.
    #[arg(long, value_name = "AGE", conflicts_with = "until")]
    older_than: Option<When>,
    /// Only letters with this status.
    #[arg(long, value_parser = PossibleValuesParser::new(Status::ALL.map(Status::as_str))
        .try_map(|text| text.parse::<Status>()))]
    status: Option<Status>,
    #[command(flatten)]
    consent: Consent,
}

impl Purge {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        let mut filter = match self.older_than {
            None => self.selection.filter_or_all(letters, self.all).await?,
            Some(age) => {
                let time = age.time(letters).await?;
                self.selection.filter(letters).await?.until(time)
            }
        };
        let status = self.status;
        if let Some(status) = status {
            filter = filter.status(status);
        }
        let which = told(&filter);
        // As many letters as are counted here, and no more: others may be closed meanwhile.
        let (asked, filter) = (to_purge(&filter), letters.failed_by_now(&filter).await?);
        let count = letters.count_purged(&filter).await?;
        let ahead = ahead(context, letters, &asked).await?;
        let is_purged = |one| status.map_or(one != Status::Failed, |wanted| wanted == one);
        let left = Left::of(letters, &filter, is_purged).await?;
        if count > 0 {
            let kind = status.map_or_else(|| "resolved or ignored".into(), |one| one.to_string());
            let open =
                if status == Some(Status::Failed) { ", which nobody has dealt with" } else { "" };
            let many = shown::letters(count);
            let what = format!("delete {many}{which} for good ({kind}{open})");
            self.consent.or_else(&what, so_far(&filter))?;
        }
        let named = self.selection.ids().len();
        let bar = &context.out.progress(count);
        let work = letters.purge_most(&filter, count, |so_far| bar.set_position(so_far));
        let words = ["deleted", "purged"];
        let change = Change { context, words, count, bar, ahead, left, named };
        change.end(Box::pin(work), letters.count_purged(&filter), "").await
    }
}
