//! Two things measured in turns, so that a noisy machine is noisy for both.

use std::future::Future;

use anyhow::Result;

use crate::meter::Figures;
use crate::report::{Report, rounded};

/// Runs both `rounds` times, the first of a round changing. The report has the
/// figures of the run in the middle and the median of the rounds' ratios.
pub async fn against<A, B>(
    rounds: usize,
    mut ours: impl FnMut() -> A,
    mut ceiling: impl FnMut() -> B,
) -> Result<(Figures, Figures, f64)>
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
        ratios.push(a.per_second() / b.per_second());
        let srv =
            |f: &Figures| f.server_cpu.unwrap_or_default().as_secs_f64() * 1e6 / f.messages as f64;
        eprintln!("server {:.2} {:.2}", srv(&a), srv(&b));
        eprintln!(
            "round {round}: {:.0}/s, ceiling {:.0}/s, ratio {:.3}; cpu {:.2} and {:.2} us",
            a.per_second(),
            b.per_second(),
            ratios[round],
            a.cpu.as_secs_f64() * 1e6 / a.messages as f64,
            b.cpu.as_secs_f64() * 1e6 / b.messages as f64
        );
        our.push(a);
        theirs.push(b);
    }
    ratios.sort_by(f64::total_cmp);
    Ok((middle(our), middle(theirs), ratios[ratios.len() / 2]))
}

fn middle(mut figures: Vec<Figures>) -> Figures {
    figures.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    figures.swap_remove(figures.len() / 2)
}

pub fn report(
    scenario: &str,
    store: &str,
    (ours, ceiling, ratio): (Figures, Figures, f64),
    bar: f64,
) -> Report {
    Report {
        ceiling_per_s: Some(ceiling.per_second().round()),
        ratio: Some(rounded(ratio)),
        bar: Some(bar),
        ..Report::of(scenario, store, &ours)
    }
}
