//! Two things measured in turns, so that a noisy machine is noisy for both.

use anyhow::Result;

use crate::bench::Bench;
use crate::meter::Figures;
use crate::report::{Report, rounded};

/// The figures of the runs in the middle, and the median of the rounds' ratios.
pub struct Both {
    pub ours: Figures,
    pub ceiling: Figures,
    pub ratio: f64,
}

/// Runs both as often as `--rounds` says; who begins changes.
pub async fn against<A, B>(
    bench: &Bench,
    ours: impl FnMut() -> A,
    ceiling: impl FnMut() -> B,
) -> Result<Both>
where
    A: Future<Output = Result<Figures>>,
    B: Future<Output = Result<Figures>>,
{
    many(bench.args.rounds, ours, ceiling).await
}

/// Runs both so many times: what is over soon, and differs much from time to time,
/// takes more than `--rounds`.
pub async fn many<A, B>(
    rounds: u32,
    mut ours: impl FnMut() -> A,
    mut ceiling: impl FnMut() -> B,
) -> Result<Both>
where
    A: Future<Output = Result<Figures>>,
    B: Future<Output = Result<Figures>>,
{
    let (mut our, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let (a, b) = if round % 2 == 0 {
            let a = ours().await?;
            (a, ceiling().await?)
        } else {
            let b = ceiling().await?;
            (ours().await?, b)
        };
        let ratio = a.per_second() / b.per_second();
        eprintln!("  round {round}, ratio {ratio:.3}\n    ours    {a}\n    ceiling {b}");
        ratios.push(ratio);
        our.push(a);
        theirs.push(b);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(Both { ours: middle(our), ceiling: middle(theirs), ratio: ratios[ratios.len() / 2] })
}

fn middle(mut figures: Vec<Figures>) -> Figures {
    figures.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    figures.swap_remove(figures.len() / 2)
}

impl Both {
    /// Without a bar.
    pub fn figures(&self, scenario: &str, store: &str) -> Report {
        Report {
            ceiling_per_s: Some(self.ceiling.per_second().round()),
            ratio: Some(rounded(self.ratio)),
            ..Report::of(scenario, store, &self.ours)
        }
    }

    /// With a bar for the ratio.
    pub fn report(&self, scenario: &str, store: &str, bar: f64) -> Report {
        let report = self.figures(scenario, store);
        let ratio = report.ratio;
        report.at_least("ratio", ratio, bar)
    }
}
