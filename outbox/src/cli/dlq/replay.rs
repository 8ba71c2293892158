//! `dlq replay`: messages are put back into the outbox.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::super::confirm::Consent;
use super::super::interrupted::until_interrupted;
use super::super::output::printable;
use super::super::publish::{all, json_document};
use super::super::queues;
use super::left::ahead;
use super::selection::{self, Selection};
use super::{Context, DeadLetters, Done, Trouble, shown};
use crate::dlq::{Canary, CanaryOutcome, Filter, Kept, Replay, ReplayReport, Replayed};

/// How many letters are listed one by one. The others are only counted.
const LISTED: usize = 1000;
/// If no more letters than this were replayed, a terminal shows each of them, too.
const FEW: u64 = 10;

/// Put messages of open letters back into the outbox, the oldest first.
///
/// Safe to repeat after an interruption, and to run twice at once.
#[derive(Debug, Args)]
pub(super) struct ReplayLetters {
    #[command(flatten)]
    selection: Selection,
    /// Every open letter.
    #[arg(long)]
    all: bool,
    /// Replay at most this many.
    #[arg(long, value_name = "LETTERS")]
    limit: Option<u64>,
    /// Put the messages into another queue.
    #[arg(long, value_name = "QUEUE")]
    to_queue: Option<String>,
    /// Replace the payload with this text; only for one id. It has to be JSON if the letter's is.
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Replace the payload with the bytes of a file; only for one id.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Take the new payload whether or not it is JSON.
    #[arg(long)]
    raw: bool,
    /// Replay at most this many letters a second.
    #[arg(long, value_name = "LETTERS")]
    rate: Option<f64>,
    /// Replay this many first, and the others only if these do not fail again.
    #[arg(long, value_name = "LETTERS")]
    canary: Option<u64>,
    /// The share of the canary, from 0 to 1, that may fail again.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "canary")]
    canary_share: f64,
    /// How long to wait for the canary.
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "canary",
        value_parser = crate::duration::parse)]
    canary_patience: Duration,
    /// Run the handler of this program in a transaction that is rolled back, and show what would
    /// become of the letters. Only for handlers that take `Tx`, and for letters named by id.
    #[arg(long, conflicts_with_all = [
        "canary", "rate", "to_queue", "payload", "payload_file", "raw", "all", "limit", "queue",
        "reason", "error_kind", "fingerprint", "since", "until",
    ])]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
}

impl ReplayLetters {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        if self.dry_run {
            return super::dry_run::run(context, &self.selection.ids(), &self.consent).await;
        }
        let filter = self.selection.filter_or_all(letters, self.all).await?;
        let payload = self.payload()?;
        let how = self.how(payload.clone());
        Trouble::usage(&how.problems(&filter))?;
        if let (Some(payload), [id]) = (&payload, &self.selection.ids()[..])
            && !self.raw
            && is_json(letters, *id).await?
        {
            json_document(payload)?;
        }
        if self.canary.is_some() {
            self.refuse_paused(context, &filter).await?;
        }
        let which = selection::told(&filter);
        let asked = filter.open();
        // As many letters as are counted here, and no more: others may be opened again meanwhile.
        let filter = letters.open_letters(&filter).await?;
        let open = context.out.waiting("counting", letters.count(&filter)).await?;
        let ahead = ahead(context, letters, &[asked]).await?;
        let none = selection::none_open(&which, &filter, open, ahead);
        if let Some(queue) = &self.to_queue {
            queues::doubt(context, &context.operator()?, std::slice::from_ref(queue)).await;
        }
        if let Some(queue) = filter.queue.as_ref().filter(|_| open == 0) {
            queues::doubt(context, &context.operator()?, std::slice::from_ref(queue)).await;
        }
        let most = self.limit.unwrap_or(u64::MAX).min(open);
        if most > 1 {
            let many = shown::letters(most);
            let to =
                self.to_queue.as_deref().map(|queue| format!(" to the queue {}", printable(queue)));
            let what = format!("replay {many}{which}{}", to.unwrap_or_default());
            self.consent.or_else(&what, selection::so_far(&filter))?;
        }
        let how = if filter.ids.is_some() { how } else { how.limit(most) };
        let bar = context.out.progress(most);
        let mut told: Vec<Replayed> = Vec::new();
        let mut so_far = ReplayReport::default();
        let work = letters.replay_with(&filter, &how, |batch| {
            bar.inc(batch.len() as u64);
            let landed = batch.iter().filter(|one| one.row.is_ok()).count() as u64;
            so_far.replayed += landed;
            so_far.kept += batch.len() as u64 - landed;
            let room = LISTED.saturating_sub(told.len());
            told.extend(batch.iter().take(room));
        });
        let ended = until_interrupted(work).await;
        bar.finish_and_clear();
        let (report, trouble) = match ended {
            Ok(report) => (report, None),
            Err(trouble) if told.is_empty() => return Err(trouble),
            Err(trouble) => (so_far, Some(trouble)),
        };
        let listed: Vec<_> = told.iter().map(outcome).collect();
        let value = json!({
            "replayed": report.replayed,
            "kept": report.kept,
            "locked": report.locked,
            "ahead": ahead,
            "stopped": report.stopped(),
            "whole": trouble.is_none(),
            "canary": report.canary,
            "letters": listed,
            "listed_all": told.len() as u64 == report.replayed + report.kept,
        });
        context.out.result(&value, || {
            let told = text(&report, &told, &none);
            // It may have ended during the wait for the canary.
            let all = report.replayed >= most || report.replayed + report.kept >= open;
            let done = trouble.is_none() || all;
            if done { told } else { told + "the replay ended early: others are left\n" }
        });
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let missed = open == 0 && ahead > 0;
        let good = report.kept == 0 && !report.stopped() && !missed;
        Ok(if good { Done::Good } else { Done::Bad })
    }

    /// Refuses a canary on a queue that is paused: it would only wait, and count as failed.
    async fn refuse_paused(&self, context: &Context, filter: &Filter) -> Result<(), Trouble> {
        let Some(queue) = self.to_queue.as_ref().or(filter.queue.as_ref()) else { return Ok(()) };
        let paused = context.operator()?.paused().await?;
        if paused.iter().all(|one| one.queue != *queue) {
            return Ok(());
        }
        Err(Trouble::Usage(format!(
            "{} is paused, so nobody would handle the canary: `resume` it first, or replay without one",
            printable(queue)
        )))
    }

    fn payload(&self) -> Result<Option<Vec<u8>>, Trouble> {
        let Some(path) = &self.payload_file else {
            return Ok(self.payload.clone().map(String::into_bytes));
        };
        let bytes = std::fs::File::open(path).and_then(all);
        bytes
            .map(Some)
            .map_err(|error| Trouble::Usage(format!("{} cannot be read: {error}", path.display())))
    }

    fn how(&self, payload: Option<Vec<u8>>) -> Replay {
        let mut how = Replay::new();
        if let Some(limit) = self.limit {
            how = how.limit(limit);
        }
        if let Some(queue) = &self.to_queue {
            how = how.to_queue(queue);
        }
        if let Some(payload) = payload {
            how = how.payload(payload);
        }
        if let Some(rate) = self.rate {
            how = how.per_second(rate);
        }
        if let Some(first) = self.canary {
            let canary = Canary::new(first, self.canary_share).patience(self.canary_patience);
            how = how.canary(canary);
        }
        how
    }
}

/// Whether the payload of a letter is to be JSON: its headers say so, or say nothing and it is.
async fn is_json(letters: &DeadLetters, id: i64) -> Result<bool, Trouble> {
    let Some(opened) = letters.show(id).await? else { return Ok(false) };
    let headers = opened.headers().unwrap_or_default();
    Ok(match headers.content_type() {
        Some(kind) => kind.contains("json"),
        None => json_document(&opened.payload).is_ok(),
    })
}

fn outcome(one: &Replayed) -> Value {
    match one.row {
        Ok(row) => json!({ "letter": one.letter, "row": row }),
        Err(kept) => json!({ "letter": one.letter, "kept": kept.to_string() }),
    }
}

fn text(report: &ReplayReport, told: &[Replayed], none: &str) -> String {
    let mut text = format!("{} replayed{none}", shown::letters(report.replayed));
    if report.kept > 0 {
        let _ = write!(text, ", {} kept", shown::count(report.kept));
    }
    text.push('\n');
    let few = report.replayed <= FEW;
    for Replayed { letter, row, .. } in told {
        let _ = match row {
            Err(kept) => writeln!(text, "  letter {letter}: {kept}"),
            Ok(row) if few => writeln!(text, "  letter {letter} is row {row} now"),
            Ok(_) => Ok(()),
        };
    }
    if report.locked > 0 {
        let _ = writeln!(text, "  {}: {}", shown::letters(report.locked), Kept::Locked);
    }
    if let Some(canary) = &report.canary {
        let CanaryOutcome { handled, failed, waiting, .. } = canary;
        let _ = writeln!(
            text,
            "canary: {handled} handled, {failed} failed again, {waiting} still in the outbox"
        );
        if *waiting > 0 && handled + failed == 0 {
            text.push_str(
                "  nobody has handled any of them: does a consumer of their queue run?\n",
            );
        }
    }
    if report.stopped() {
        text.push_str("stopped there: nothing else was replayed\n");
    }
    text
}
