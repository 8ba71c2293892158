//! V1: what the server wrote down of each row, led through the state machine of
//! `outbox-model`. The rules that hold in all states there are those that were kept here.

mod holder;
mod life;
#[cfg(test)]
pub(super) mod record;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::history::{Change, History, Op};
use life::Life;

/// In the order of the audit, which of each row is that of its commits: whoever writes a row
/// has it locked from before its audit until then.
pub(super) fn every_change_is_a_step_of_the_model(history: &History) -> Verdict {
    let promise = "a change of a row is a step that the model allows, and does what it does there";
    let mut verdict = Verdict::of("V1", promise);
    let mut letters: HashMap<i64, u8> = HashMap::new();
    for letter in history.changes.iter().filter(|change| change.op == Op::Letter) {
        let count = letters.entry(letter.id).or_default();
        *count = count.saturating_add(1);
    }
    let mut rows = Rows { history, lives: HashMap::new(), strayed: HashSet::new() };
    // Queues and names of which a row is there: in all else rows know nothing of each other.
    let mut timers: HashSet<(&str, &str)> = HashSet::new();
    for change in history.changes.iter().filter(|change| change.op != Op::Letter) {
        let timer = change.timer.as_deref().map(|timer| (&*change.queue, timer));
        let mut taken = false;
        match (timer, change.op) {
            (Some(name), Op::Insert) => taken = !timers.insert(name),
            (Some(name), Op::Delete) => _ = timers.remove(&name),
            _ => {}
        }
        let buried = letters.get(&change.id).copied().unwrap_or_default();
        let Some(step) = rows.take(change, taken, buried) else { continue };
        verdict.test(step.is_ok(), || {
            let (id, act, app) = (change.id, change.act(), &change.app);
            format!("row {id}: {act:?} by {app}: {}", step.err().unwrap_or_default())
        });
    }
    for id in rows.lives.keys().filter(|id| letters.contains_key(id)) {
        verdict.test(false, || format!("row {id} is there, and so is its letter"));
    }
    verdict
}

struct Rows<'a> {
    history: &'a History,
    /// Of rows that are there.
    lives: HashMap<i64, Life<'a>>,
    /// Of these one step was none: nothing more can be said of them.
    strayed: HashSet<i64>,
}

impl<'a> Rows<'a> {
    /// Why it is no step of the model, if it is none; `None` of a row that has strayed.
    fn take(&mut self, change: &'a Change, taken: bool, letters: u8) -> Option<Result<(), String>> {
        if self.strayed.contains(&change.id) {
            return None;
        }
        let step = self.step(change, taken, letters);
        if step.is_err() {
            self.lives.remove(&change.id);
            self.strayed.insert(change.id);
        }
        Some(step)
    }

    fn step(&mut self, change: &'a Change, taken: bool, letters: u8) -> Result<(), String> {
        let unknown = || "nobody published it".to_owned();
        match change.op {
            Op::Insert => {
                let life = Life::published(self.history, change, taken)?;
                self.lives.insert(change.id, life);
                Ok(())
            }
            Op::Delete => {
                let life = self.lives.remove(&change.id);
                life.ok_or_else(unknown)?.deleted(change, letters)
            }
            Op::Update | Op::Letter => {
                let life = self.lives.get_mut(&change.id);
                life.ok_or_else(unknown)?.written(change)
            }
        }
    }
}
