//! What a handler does with a message, and what it says of it.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use outbox::{Context, Outcome};

use crate::journal::{Journal, now};
use crate::workload::{Act, EXIT, Message, SNOOZE};

pub(super) static RUN: OnceLock<Journal> = OnceLock::new();

fn run(words: &str) {
    RUN.get().expect("opened first").write(words);
}

/// The word of a run is written by the handler itself: what the framework makes of it is
/// the question.
pub(super) fn begun(context: &Context, key: &str) {
    run(&format!("begun {} {} {} {key}", context.id(), context.fence(), context.subscriber()));
}

pub(super) fn ended(context: &Context, word: &str) {
    run(&format!("ended {} {} {word}", context.id(), context.fence()));
}

struct Hostile;

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a\0b")?;
        (0..5_000).try_for_each(|_| f.write_str("\u{1F980}"))
    }
}

impl fmt::Display for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Hostile {}

pub(super) fn panics(message: &Message, context: &Context) -> bool {
    matches!(message.act, Act::Panic(runs) if context.attempts() < runs)
}

/// Says what the run comes to, and then comes to it.
pub(super) fn end(message: &Message, context: &Context) -> Result<Outcome> {
    let created = context.created_at().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let early = u128::from(now().unsigned_abs()) < created.as_micros() + 800_000;
    match message.act {
        Act::Fail(runs) if context.attempts() < runs => {
            ended(context, "fail");
            anyhow::bail!("as it was told")
        }
        Act::Hostile => {
            ended(context, "fail");
            Err(Hostile.into())
        }
        Act::Panic(_) if panics(message, context) => {
            ended(context, "panic");
            panic!("as it was told")
        }
        Act::Reject => {
            ended(context, "reject");
            Ok(Outcome::reject("as it was told"))
        }
        Act::Snooze if early => {
            ended(context, "snooze");
            Ok(Outcome::Snooze(SNOOZE))
        }
        Act::Abort => std::process::abort(),
        Act::Overflow => {
            let deep = overflow(message.ms);
            unreachable!("{deep}")
        }
        Act::Exit => std::process::exit(EXIT),
        _ => {
            ended(context, "ok");
            Ok(Outcome::Ack)
        }
    }
}

/// Of which no frame can be left out.
#[allow(unconditional_recursion, reason = "that is the fault")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    overflow(frame[0] + 1) + frame[511]
}

pub(super) async fn play(message: &Message, context: &Context) {
    begun(context, &message.key);
    let wait = Duration::from_millis(message.ms);
    if message.act == Act::Block {
        std::thread::sleep(wait);
    } else {
        tokio::time::sleep(wait).await;
    }
}
