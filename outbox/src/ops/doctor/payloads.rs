//! Whether the handlers of this program can read what waits for them.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Doctor;
use super::names::count;
use super::report::{Found, Severity};
use super::trial::Trial;
use crate::error::{Result, StoreError};
use crate::message::Stored;
use crate::ops::on_desk;

/// How many ids of each group are told.
const SHOWN: usize = 5;
/// How many groups are kept apart, so that memory stays bounded whatever the tables hold.
const GROUPS: usize = 200;

/// What a trial needs of a row or of a dead letter.
pub(crate) struct StoredMessage {
    pub(crate) id: i64,
    pub(crate) queue: String,
    pub(crate) payload: Bytes,
    pub(crate) headers: Option<Stored>,
}

/// Some rows of a table, in order of id. Each is handed over as it comes, so that one at a time is
/// in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    /// Whether these are open letters of the dead-letter table.
    pub(crate) letters: bool,
    /// It begins behind this id.
    pub(crate) after: i64,
    /// It ends with this id. With the rows that come later it would have no end.
    pub(crate) last: i64,
    /// Payloads of other queues are not sent.
    pub(crate) queues: &'a [String],
    pub(crate) rows: i64,
}

/// Rows that fail for one reason.
#[derive(Default)]
struct Group {
    rows: u64,
    ids: Vec<i64>,
}

type Groups = BTreeMap<(String, &'static str, String), Group>;

/// What was tried in one table.
#[derive(Default)]
struct Tried {
    /// The rows of queues that a handler reads. Others are passed over.
    rows: u64,
    /// The rows that the progress counts: those that a limit counts, or else all.
    done: u64,
    groups: Groups,
    complete: bool,
}

pub(super) async fn check(doctor: &Doctor, found: &mut Found) -> Result<String> {
    if doctor.subscribers.is_empty() {
        return Ok("not decoded: this program has no handlers".into());
    }
    let trial = Trial::new(&doctor.subscribers);
    for subscriber in &trial.unknown {
        found.note(
            format!(
                "the subscriber `{subscriber}` decodes its messages itself: they were not tried"
            ),
            "whether this program can read them is not known",
            "say what it reads, by `.decodes::<T>()` on the subscriber",
        );
    }
    if trial.queues().is_empty() {
        return Ok("not decoded: no handler says what it reads".into());
    }
    let extents = on_desk!(doctor.operator, desk => desk.extents().await)?;
    let most = |rows: u64| rows.min(doctor.rows.unwrap_or(u64::MAX));
    let of = extents.iter().flatten().map(|extent| most(extent.rows)).sum();
    let (mut done, mut said) = (0, Vec::new());
    for (letters, extent) in [false, true].into_iter().zip(extents) {
        let Some(extent) = extent else { continue };
        let tried = read(doctor, &trial, letters, extent.last, done, of).await?;
        done += tried.done;
        said.push(tell(&tried, letters, extent.rows, found));
    }
    Ok(said.join(", "))
}

/// How many rows a table has, and its last id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rows: u64,
    pub(crate) last: i64,
}

async fn read(
    doctor: &Doctor,
    trial: &Trial,
    letters: bool,
    last: i64,
    before: u64,
    of: u64,
) -> Result<Tried, StoreError> {
    const PAGE: u64 = 500;
    let queues = trial.queues();
    let (mut tried, mut after) = (Tried::default(), i64::MIN);
    let mut most = PAGE;
    // A row that is sent and not tried is a waste, but so is a page of other queues' rows.
    let mut widest = 1;
    loop {
        // With none left, one more is looked for: rows that no handler here reads are not missed.
        let left = doctor.rows.map_or(u64::MAX, |most| most.saturating_sub(tried.rows));
        let rows = left.max(widest).min(most);
        let page = Page { letters, after, last, queues: &queues, rows: rows.cast_signed() };
        let (mut seen, mut read) = (0, 0);
        let each = |kept: StoredMessage| {
            (after, seen) = (kept.id, seen + 1);
            if trial.reads(&kept.queue) {
                read += 1;
                if read <= left {
                    note(trial, kept, &mut tried.groups);
                }
            }
        };
        let looked_up = on_desk!(doctor.operator, desk => desk.page(page, each).await)?;
        if !looked_up {
            // With pages of one size, the time would grow with the square of their number.
            most = most.saturating_mul(2);
        }
        let here = read.min(left);
        tried.rows += here;
        tried.done += if doctor.rows.is_some() { here } else { seen };
        (doctor.progress)(before + tried.done, of);
        if seen < rows || read > left {
            tried.complete = read <= left;
            return Ok(tried);
        }
        if read == 0 {
            widest = 2 * rows;
        }
    }
}

fn note(trial: &Trial, kept: StoredMessage, groups: &mut Groups) {
    let (id, queue) = (kept.id, kept.queue.clone());
    let Some((subscriber, why)) = trial.fails(kept) else { return };
    let mut key = (queue, subscriber, why);
    if groups.len() >= GROUPS && !groups.contains_key(&key) {
        key.2 = "other reasons".into();
    }
    let group = groups.entry(key).or_default();
    group.rows += 1;
    if group.ids.len() < SHOWN {
        group.ids.push(id);
    }
}

fn tell(tried: &Tried, letters: bool, there: u64, found: &mut Found) -> String {
    let kind = if letters { "failed dead letter" } else { "row" };
    for ((queue, subscriber, error), Group { rows, ids }) in &tried.groups {
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        let more = if *rows > SHOWN as u64 { ", .." } else { "" };
        let what = format!(
            "{} of queue `{queue}` cannot be read by the subscriber `{subscriber}` of this \
             program: {error} (ids {}{more})",
            count(*rows, kind),
            ids.join(", ")
        );
        if letters {
            let why = "a replay would fail as it did before";
            found.add(
                Severity::Warning,
                what,
                why,
                "replay them with an edited payload, or mark them ignored",
            );
        } else {
            found.error(
                what,
                "this program would fail them until their retries are spent: do not deploy it",
                "make it read them, for example with `#[serde(default)]` or `Option` on the \
                 field, or deploy it after they are handled",
            );
        }
    }
    if !tried.complete && tried.rows < there {
        found.note(
            format!("only the oldest {} of {} were tried", tried.rows, count(there, kind)),
            "the others may not decode",
            "try more of them",
        );
    }
    let failed: u64 = tried.groups.values().map(|group| group.rows).sum();
    format!("{} of {} can be read", tried.rows - failed, count(tried.rows, kind))
}
