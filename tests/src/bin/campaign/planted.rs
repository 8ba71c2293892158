//! The harness is itself tested: bugs of `outbox/src/planted.rs`, each of which it has to
//! catch within a minute.

use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::args::Args;

const BUGS: [&str; 21] = [
    "retry-without-token",
    "ack-without-token",
    "release-without-token",
    "extend-without-token",
    "worker-as-token",
    "letter-in-two-steps",
    "letter-without-delete",
    "delete-without-letter",
    "letter-without-headers",
    "ack-first",
    "panic-is-ok",
    "no-deadline-check",
    "guilty-by-neighbour",
    "claim-over-lease",
    "stale-lease",
    "early-claim",
    "early-retry",
    "uncounted-delivery",
    "drain-keeps-leases",
    "publish-outside",
    // None: what is caught then is not a bug's doing.
    "",
];

/// True when each is caught, and nothing where there is none.
pub async fn all(args: &Args, bug: &str, seed: u64) -> Result<bool> {
    if !cfg!(outbox_planted) {
        bail!("no bug can be planted in this build; see `scripts/planted`");
    }
    let chosen: Vec<&str> = BUGS.into_iter().filter(|one| bug == "all" || *one == bug).collect();
    if chosen.is_empty() {
        bail!("{bug:?} is none of {BUGS:?}");
    }
    let mut good = true;
    for bug in chosen {
        let broken = broken(args, bug, seed).await.with_context(|| bug.to_owned())?;
        let as_it_should = broken.is_empty() == bug.is_empty();
        good &= as_it_should;
        let name = if bug.is_empty() { "(none)" } else { bug };
        let found = if broken.is_empty() { "nothing".into() } else { broken.join(", ") };
        println!("{name:24} {} by {found}", if broken.is_empty() { "passed" } else { "caught" });
        if !as_it_should {
            println!("{name:24} NOT AS IT SHOULD BE, seed {seed}");
        }
    }
    Ok(good)
}

/// The properties that a minute with this bug breaks, and how often.
async fn broken(args: &Args, bug: &str, seed: u64) -> Result<Vec<String>> {
    let store = format!("{:?}", args.store).to_lowercase();
    let run = Command::new(std::env::current_exe()?)
        .args(["--minutes", "1", "--json", "--store", &store, "--seed", &seed.to_string()])
        .env("OUTBOX_PLANTED", bug)
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&run.stdout);
    let report: Value = serde_json::from_str(text.lines().last().context("it said nothing")?)?;
    let properties = report["properties"].as_object().context("it names properties")?;
    let counts = properties.iter().filter_map(|(id, it)| Some((id, it["broken"].as_u64()?)));
    Ok(counts.filter(|(_, count)| *count > 0).map(|(id, count)| format!("{id}×{count}")).collect())
}
