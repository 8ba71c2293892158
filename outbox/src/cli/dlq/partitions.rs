//! `dlq partition` and `dlq drop-partitions`.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;

use super::super::confirm::Consent;
use super::super::output::printable;
use super::selection::When;
use super::{Context, Done, Trouble, shown};
use crate::dlq::{Dropped, Filter};

/// Cut the dead-letter table into months, or make those it lacks.
///
/// PostgreSQL only. Run it once a month. Old months are dropped as a whole, by
/// `dlq drop-partitions`.
#[derive(Debug, Args)]
pub(super) struct Cut {
    /// How many months to make in advance.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=120))]
    months_ahead: u32,
    #[command(flatten)]
    consent: Consent,
}

/// Drop months that are long over, with all that is in them.
///
/// Says how many letters each had. A month with open letters stays unless `--with-open`.
#[derive(Debug, Args)]
pub(super) struct DropMonths {
    /// How long ago a month has to be over, such as `180d`.
    #[arg(long, value_name = "AGE")]
    older_than: When,
    /// Also drop months with letters that nobody has dealt with.
    #[arg(long)]
    with_open: bool,
    #[command(flatten)]
    consent: Consent,
}

impl Cut {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        let there = letters.partitions().await?;
        let moved = "while they are moved, nobody else reads or writes letters, and messages that \
                     fail wait in the outbox";
        if there.is_empty() && context.operator()?.database().has_partitions() {
            let all = Filter::new();
            let count = context.out.waiting("counting", letters.count(&all)).await?;
            let many = shown::letters(count);
            self.consent.to(&format!("cut the dead-letter table, {many}, into months; {moved}"))?;
        }
        // Letters of no month yet.
        let left = there.iter().filter(|month| month.from.is_none() && month.until.is_none());
        let left: u64 = left.map(|default| default.letters).sum();
        if left > 0 {
            let many = shown::letters(left);
            self.consent
                .to(&format!("move {many} that no month holds into new months; {moved}"))?;
        }
        let done = letters.partition(self.months_ahead);
        let done = context.out.waiting("moving letters", done).await?;
        context.out.result(&json!(done), || match done.made.len() {
            0 => "every month is there".into(),
            _ => format!(
                "{} moved; made {}",
                shown::letters(done.moved),
                printable(&done.made.join(", "))
            ),
        });
        Ok(Done::Good)
    }
}

impl DropMonths {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        let before = self.older_than.time(letters).await?;
        let months = letters.partitions().await?;
        let old = months.iter().filter(|month| month.until.is_some_and(|until| until <= before));
        let (going, staying): (Vec<_>, Vec<_>) =
            old.partition(|month| self.with_open || month.open == 0);
        // Dropping a month locks the whole table: not for nothing.
        if going.is_empty() && !staying.is_empty() {
            let kept: Vec<_> = staying.into_iter().map(Dropped::kept).collect();
            context.out.result(&json!({ "months": kept }), || told(&kept));
            return Ok(Done::Bad);
        }
        if !going.is_empty() {
            let mut told = String::from("drop for good");
            for month in &going {
                let (name, many) = (printable(&month.name), shown::letters(month.letters));
                let _ = write!(told, "\n  {name}: {many}, {} open", shown::count(month.open));
            }
            self.consent.to(&(told + "\n"))?;
        }
        let agreed: Vec<_> = going.iter().map(|month| &*month.name).collect();
        let gone = letters.drop_agreed(before, self.with_open, Some(&agreed));
        let gone = context.out.waiting("dropping months", gone).await?;
        context.out.result(&json!({ "months": gone }), || told(&gone));
        let all = gone.iter().all(|month| month.dropped);
        Ok(if all { Done::Good } else { Done::Bad })
    }
}

fn told(gone: &[Dropped]) -> String {
    if gone.is_empty() {
        return "no month is that old".into();
    }
    let mut text = String::new();
    for month in gone {
        let (name, many) = (printable(&month.name), shown::letters(month.letters));
        let _ = if month.dropped {
            writeln!(text, "{name} dropped: {many}, {} of them open", shown::count(month.open))
        } else if month.open == 0 {
            writeln!(text, "{name} kept: its last open letter was closed meanwhile; run it again")
        } else {
            writeln!(
                text,
                "{name} kept: {} of {many} are open (--with-open)",
                shown::count(month.open)
            )
        };
    }
    text
}
