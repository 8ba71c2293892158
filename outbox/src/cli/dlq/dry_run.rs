//! `dlq replay --dry-run`: handlers run on trial.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::confirm::Consent;
use super::super::interrupted::until_interrupted;
use super::super::output::printable;
use super::shown::line;
use super::{Context, Done, Trouble};
use crate::dlq::{DryOutcome, DryRun};

pub(super) async fn run(
    context: &Context,
    ids: &[i64],
    consent: &Consent,
) -> Result<Done, Trouble> {
    if ids.is_empty() {
        return Err(Trouble::Usage(
            "`--dry-run` is only for letters that are named by id: name some".into(),
        ));
    }
    let what = "run the handlers for real: what they write in their transactions is rolled back, \
                but everything else they do stays done";
    consent.to(what)?;
    let bar = context.out.progress(ids.len() as u64);
    let mut trials = Vec::new();
    let work = async {
        for &id in ids {
            trials.push((id, context.app.dry_run(id).await?));
            bar.inc(1);
        }
        Ok(())
    };
    let ended = until_interrupted(work).await;
    bar.finish_and_clear();
    // The trials that ran are told of: what their handlers did is done.
    if trials.is_empty() {
        return ended.map(|()| Done::Good);
    }
    let good = trials.iter().all(|(_, trial)| trial.outcome == DryOutcome::Acked);
    let listed: Vec<_> = trials.iter().map(value).collect();
    let value = json!({ "trials": listed, "whole": ended.is_ok() });
    context.out.result(&value, || trials.iter().map(text).collect());
    ended?;
    Ok(if good { Done::Good } else { Done::Bad })
}

fn value((id, trial): &(i64, DryRun)) -> Value {
    let (word, delay, reason) = match trial.outcome {
        DryOutcome::Acked => ("acked", None, None),
        DryOutcome::Retried(delay) => ("retried", Some(delay.as_secs_f64()), None),
        DryOutcome::Snoozed(delay) => ("snoozed", Some(delay.as_secs_f64()), None),
        DryOutcome::Dead(reason) => ("dead", None, Some(reason.as_str())),
    };
    json!({
        "letter": id,
        "subscriber": trial.subscriber,
        "outcome": word,
        "delay": delay,
        "failure_reason": reason,
        "error_kind": trial.error.as_ref().map(|(kind, _)| kind),
        "error": trial.error.as_ref().map(|(_, text)| text),
        "published": trial.published,
    })
}

fn text((id, trial): &(i64, DryRun)) -> String {
    let (word, delay) = match trial.outcome {
        DryOutcome::Acked => ("handled", None),
        DryOutcome::Retried(delay) => ("failed, to be retried", Some(delay)),
        DryOutcome::Snoozed(delay) => ("snoozed", Some(delay)),
        DryOutcome::Dead(_) => ("a dead letter again", None),
    };
    let mut text = format!("letter {id}: {word} by `{}`", trial.subscriber);
    if let Some(delay) = delay {
        let _ = write!(text, ", after {} s", delay.as_secs_f64());
    }
    text.push('\n');
    if let Some((kind, error)) = &trial.error {
        let _ = writeln!(text, "  {}: {}", printable(kind), printable(&line(Some(error), 500)));
    }
    for message in &trial.published {
        let queue = printable(&message.queue);
        let _ = writeln!(text, "  would publish {} bytes to {queue}", message.payload_bytes);
    }
    text
}
