//! The harness is itself tested: bugs of `outbox/src/planted.rs`, each of which it has to
//! catch within a minute.

use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::args::{Args, Store};

/// Each with the properties of which it breaks one at least.
const BUGS: [(&str, &[&str]); 22] = [
    ("retry-without-token", &["L4"]),
    ("ack-without-token", &["D1", "L4"]),
    ("release-without-token", &["L4"]),
    ("extend-without-token", &["L3", "L4"]),
    ("worker-as-token", &["L3"]),
    ("letter-in-two-steps", &["D2"]),
    ("letter-without-delete", &["D2"]),
    ("delete-without-letter", &["D1"]),
    ("letter-without-headers", &["D4"]),
    ("ack-first", &["D1", "H4"]),
    ("panic-is-ok", &["D1"]),
    ("no-deadline-check", &["H3"]),
    ("guilty-by-neighbour", &["H5"]),
    ("claim-over-lease", &["L1"]),
    ("stale-lease", &["L2"]),
    ("early-claim", &["T1"]),
    ("early-retry", &["T2"]),
    ("uncounted-delivery", &["C1"]),
    ("drain-keeps-leases", &["G1"]),
    ("publish-outside", &["P1", "P2"]),
    ("leaked-connection", &["Z3"]),
    // None: what is caught then is not a bug's doing.
    ("", &[]),
];

/// Those that a file can have, too, of which it is judged.
const OF_A_FILE: [&str; 12] = [
    "worker-as-token",
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
    "",
];

/// True when each is caught, and nothing where there is none.
pub async fn all(args: &Args, bug: &str, seed: u64) -> Result<bool> {
    if !cfg!(outbox_planted) {
        bail!("no bug can be planted in this build; see `scripts/planted`");
    }
    let had = |one: &str| args.store == Store::Postgres || OF_A_FILE.contains(&one);
    let asked = |one: &str| bug == "all" || one == bug;
    let chosen: Vec<_> = BUGS.into_iter().filter(|(one, _)| had(one) && asked(one)).collect();
    if chosen.is_empty() {
        bail!("{bug:?} is none of {:?}", BUGS.map(|(one, _)| one));
    }
    let mut good = true;
    for (bug, properties) in chosen {
        let broken = broken(args, bug, seed).await.with_context(|| bug.to_owned())?;
        let found = |id: &&str| broken.iter().any(|(broken, ..)| broken == id);
        let as_it_should =
            if bug.is_empty() { broken.is_empty() } else { properties.iter().any(found) };
        good &= as_it_should;
        let name = if bug.is_empty() { "(none)" } else { bug };
        let told: Vec<_> = broken.iter().map(|(id, count, _)| format!("{id}×{count}")).collect();
        println!(
            "{name:24} breaks {}",
            if told.is_empty() { "nothing".into() } else { told.join(", ") }
        );
        if !as_it_should {
            println!(
                "{name:24} NOT AS IT SHOULD BE, seed {seed}: {properties:?}, and not {broken:?}"
            );
        }
    }
    Ok(good)
}

/// The properties that a minute with this bug breaks, how often, and the first time.
async fn broken(args: &Args, bug: &str, seed: u64) -> Result<Vec<(String, u64, String)>> {
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
    let counts = properties.iter().filter_map(|(id, it)| {
        let count = it["broken"].as_u64().filter(|count| *count > 0)?;
        Some((id.clone(), count, it["first"].to_string()))
    });
    Ok(counts.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::{BUGS, OF_A_FILE};

    /// The names that a text gives as `planted("name")`.
    fn asked(text: &str) -> impl Iterator<Item = String> {
        let behind = text.split("planted(\"").skip(1);
        behind.filter_map(|text| Some(text.split_once('"')?.0.to_owned()))
    }

    /// Those of the bugs in statements: nothing else there is in words with hyphens alone.
    fn edited<'a>(text: &'a str, list: &str) -> impl Iterator<Item = String> + use<'a> {
        let statements = text.split_once(list).unwrap().1;
        let statements = statements.split_once("\n    ];").unwrap().0;
        let is_name = |it: &&str| {
            it.contains('-') && it.chars().all(|char| char == '-' || char.is_ascii_lowercase())
        };
        statements.split('"').filter(is_name).map(str::to_owned)
    }

    fn all(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all(&path, names);
            } else if path.extension().is_some_and(|it| it == "rs") {
                names.extend(asked(&fs::read_to_string(path).unwrap()));
            }
        }
    }

    #[test]
    fn every_bug_is_looked_for_and_is_there() {
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outbox/src");
        let mut there = BTreeSet::new();
        all(&library, &mut there);
        assert!(there.contains("ack-first"), "{there:?}");
        let text = fs::read_to_string(library.join("planted.rs")).unwrap();
        let of_a_file: BTreeSet<_> =
            edited(&text, "const ON_SQLITE").chain(there.iter().cloned()).collect();
        let missing = OF_A_FILE.iter().find(|bug| !bug.is_empty() && !of_a_file.contains(**bug));
        assert_eq!(missing, None, "of SQLite");
        there.extend(edited(&text, "const ON_SQLITE"));
        assert!(there.contains("early-retry"), "{there:?}");
        assert_eq!(edited(&text, "const ON_SQLITE").find(|it| !OF_A_FILE.contains(&&**it)), None);
        there.extend(edited(&text, "const STATEMENTS"));
        let named = BUGS.iter().map(|(bug, _)| (*bug).to_owned()).filter(|bug| !bug.is_empty());
        assert_eq!(there, named.collect());
    }

    #[test]
    fn as_many_bugs_are_promised() {
        let guarantees = include_str!("../../../../docs/guarantees.md");
        let told = format!("{0} of {0}, each within a minute", BUGS.len() - 1);
        assert!(guarantees.contains(&told), "{told}");
    }
}
