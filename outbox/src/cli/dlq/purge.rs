//! `dlq purge`: letters are deleted for good.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::json;

use super::super::confirm::Consent;
use super::super::interrupted::until_interrupted;
use super::left::{Left, ahead};
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
        let bar = context.out.progress(count);
        let mut purged = 0;
        let work = letters.purge_most(&filter, count, |so_far| {
            purged = so_far;
            bar.set_position(so_far);
        });
        let ended = until_interrupted(work).await;
        bar.finish_and_clear();
        if purged == 0 {
            ended?;
        } else if let Err(trouble) = ended {
            let told = shown::half_way(purged, "deleted", count);
            let value = json!({
                "purged": purged, "whole": false, "locked": 0, "ahead": ahead, "letters": left.value(),
            });
            context.out.result(&value, || told);
            return Err(trouble);
        }
        // Somebody else may have deleted some of them.
        let locked = match count.saturating_sub(purged) {
            0 => 0,
            most => letters.count_purged(&filter).await?.min(most),
        };
        let named = self.selection.ids().len() as u64;
        let value = json!({
            "purged": purged, "whole": true, "locked": locked, "ahead": ahead,
            "letters": left.value(),
        });
        context.out.result(&value, || {
            let many = shown::letters(purged);
            left.behind(match locked {
                1.. => format!("{many} deleted; {}", shown::locked(locked)),
                0 => format!("{many} deleted"),
            })
        });
        Ok(if locked > 0 || purged < named { Done::Bad } else { Done::Good })
    }
}
