//! What messages are about.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::args::Store;

/// Of every subscriber. Short, so that leases run out all the time.
pub const TTL: Duration = Duration::from_secs(2);
/// Runs of a message that always fails.
pub const MAX_ATTEMPTS: i64 = 3;
pub const RETRY_DELAY: Duration = Duration::from_millis(100);
pub const SNOOZE: Duration = Duration::from_millis(100);
/// In the queue `crash`, before a row has to run alone.
pub const MAX_DELIVERIES: i64 = 3;
/// Of a timer that is published once more.
pub const AGAIN_DELAY: Duration = Duration::from_secs(1);
/// The exit code of a handler that ends its process.
pub const EXIT: i32 = 17;

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Message {
    pub key: String,
    pub act: Act,
    /// How long the handler takes.
    pub ms: u64,
}

/// What the handler comes to. A number says in how many attempts.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Ok,
    Fail(u64),
    Panic(u64),
    Reject,
    Snooze,
    /// Fails with a text that no column takes as it is.
    Hostile,
    /// Keeps a thread of the runtime.
    Block,
    Abort,
    /// Uses up its stack.
    Overflow,
    Exit,
}

/// A message with all that is said to its publisher.
pub struct Draft {
    pub queue: &'static str,
    pub message: Message,
    /// Instead of the message.
    pub bytes: Option<&'static [u8]>,
    pub delay: Option<Duration>,
    pub timer: bool,
}

const QUEUES: [(&str, u32); 8] = [
    ("single", 40),
    ("batch", 27),
    ("plain", 9),
    ("tx", 8),
    ("returns", 7),
    ("crash", 3),
    ("rare", 2),
    ("timers", 4),
];

const ACTS: [(Act, u32); 10] = [
    (Act::Ok, 560),
    (Act::Fail(1), 140),
    (Act::Fail(9), 80),
    (Act::Reject, 100),
    (Act::Panic(1), 50),
    (Act::Panic(9), 30),
    (Act::Snooze, 20),
    (Act::Hostile, 10),
    (Act::Block, 6),
    (Act::Ok, 4),
];

/// Payloads that do not decode.
const BAD: [&[u8]; 6] = [
    b"",
    b"{\"key\": 1",
    b"\xff\xfe\x00",
    b"\x00\x00\x00",
    b"{\"key\":\"k\",\"act\":\"Ok\",\"ms\":1e400}",
    // Deeper than any decoder follows.
    &[b'['; 200_000],
];

fn weighted<T: Copy>(rng: &mut Rng, choices: &[(T, u32)]) -> T {
    let mut point = rng.u32(0..choices.iter().map(|(_, weight)| weight).sum());
    for &(choice, weight) in choices {
        if point < weight {
            return choice;
        }
        point -= weight;
    }
    choices[0].0
}

pub fn draft(rng: &mut Rng, key: String, store: Store) -> Draft {
    let queue = weighted(rng, &QUEUES);
    // A transaction that writes keeps everybody else from the file, for as long as it is open.
    let alone = queue == "tx" && store == Store::Sqlite;
    let act = match queue {
        "crash" => {
            weighted(rng, &[(Act::Ok, 96), (Act::Abort, 1), (Act::Overflow, 1), (Act::Exit, 2)])
        }
        "rare" | "timers" => Act::Ok,
        _ => weighted(rng, &ACTS),
    };
    let ms = match (act, rng.u32(0..100)) {
        (Act::Block, _) => rng.u64(500..3_000),
        (_, 0..98) if alone => rng.u64(0..5),
        (_, 0..60) => rng.u64(0..20),
        (_, 60..85) => rng.u64(50..400),
        (_, 85..95) => rng.u64(400..1_500),
        // Longer than the lease.
        _ => rng.u64(1_500..3_500),
    };
    let bad = matches!(queue, "single" | "batch") && rng.u32(0..100) == 0;
    let bytes = bad.then(|| BAD[rng.usize(0..BAD.len())]);
    let delayed = queue == "timers" || rng.u32(0..20) == 0;
    let delay = delayed.then(|| Duration::from_millis(rng.u64(200..2_000)));
    Draft { queue, message: Message { key, act, ms }, bytes, delay, timer: queue == "timers" }
}

/// One of many for few workers, so that rows wait in the memory of their process.
pub fn waiting(rng: &mut Rng, key: String) -> Draft {
    let act = weighted(rng, &ACTS);
    let message = Message { key, act, ms: rng.u64(20..200) };
    Draft { queue: "plain", message, bytes: None, delay: None, timer: false }
}
