//! One row, and the message of the model that goes the same way.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use outbox_model::{Action, Case, Fate, Message, Phase, Row, Rules, Slot, State, Verdict};

use super::holder::{Holder, within};
use crate::args::Store;
use crate::history::{Change, History, Side};
use crate::lease::{Act, fence, ttl};
use crate::workload::{AGAIN_DELAY, MAX_ATTEMPTS, MAX_DELIVERIES, RETRY_DELAY, SNOOZE};

/// Of a row whose transaction did not begin or commit.
const PUT_OFF: RangeInclusive<i64> = 500_000..=1_500_000;
/// A row that was started is not due again within a millisecond of its claim: when its count
/// is taken back, only the time tells that claim from the next.
const NOT_BEFORE: i64 = 1_000;

/// Times are microseconds, as in the audit.
type Model = State<2, 4, i64>;
/// The row, and whatever other one has its timer name.
const OWN: u8 = 0;
const OTHER: usize = 1;
/// Each place has a worker of its own, and that worker room for what runs beside the row.
const PLACES: usize = 2;

pub(super) struct Life<'a> {
    history: &'a History,
    queue: &'a str,
    timer: bool,
    state: Model,
    /// Who claimed it last, and who before that: of them one may still write.
    holders: [Option<Holder<'a>>; PLACES],
    last: usize,
    /// The one on the row.
    token: Option<&'a str>,
    used: HashSet<&'a str>,
}

fn micros(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn slot_of(place: usize) -> u8 {
    u8::try_from(2 * place).unwrap_or(u8::MAX)
}

impl<'a> Life<'a> {
    pub(super) fn published(
        history: &'a History,
        change: &'a Change,
        taken: bool,
    ) -> Result<Self, String> {
        let delay = match change.key.as_deref() {
            Some(key) if key.starts_with("again:") => micros(AGAIN_DELAY),
            Some(key) => history.biz.get(key).map_or(0, |biz| biz.delay),
            None => 0,
        };
        let now = change.new.due - delay;
        within(change, now)?;
        let mut state = Model::begin(now);
        if taken {
            let row = Some(Row::new(now));
            state.messages[OTHER] = Message { fate: Fate::Committed, row, ..Message::default() };
        }
        let mut life = Self {
            history,
            queue: &change.queue,
            timer: change.timer.is_some(),
            state,
            holders: [None, None],
            last: 0,
            token: None,
            used: HashSet::new(),
        };
        life.take(delay, Action::Publish { key: OWN })?;
        life.state.messages[OTHER] = Message::default();
        life.is(&change.new)?;
        Ok(life)
    }

    /// The row was updated.
    pub(super) fn written(&mut self, change: &'a Change) -> Result<(), String> {
        self.is(&change.old).map_err(|why| format!("before it, {why}"))?;
        let act = change.act();
        match act {
            Act::Claim => self.claimed(change)?,
            Act::Renew | Act::Mark => self.continued(change)?,
            Act::Retry => {
                let place = self.place_of(change)?;
                let verdict = self.said(place, change)?.ok_or("no word of its handler")?;
                let delay = micros(RETRY_DELAY);
                self.settle(place, verdict, change, change.new.due - delay, delay)?;
                self.token = None;
            }
            Act::Release => self.released(change)?,
            Act::Insert | Act::Delete | Act::Letter | Act::Other => {
                return Err("the model has no such step".to_owned());
            }
        }
        self.is(&change.new)
    }

    pub(super) fn deleted(&mut self, change: &'a Change, letters: u8) -> Result<(), String> {
        self.is(&change.old).map_err(|why| format!("before it, {why}"))?;
        if self.token.is_none() && self.timer && !change.by_worker() {
            self.state.now = change.at;
            self.take(0, Action::Cancel { key: OWN })?;
        } else {
            let place = self.place_of(change)?;
            let guilty = self.slot(place)?.case == Case::Guilty;
            let verdict = self.said(place, change)?.or(guilty.then_some(Verdict::TooOften));
            let verdict = verdict.ok_or("no word of its handler")?;
            self.settle(place, verdict, change, change.at, 0)?;
        }
        let message = &self.state.messages[usize::from(OWN)];
        match message.row {
            Some(row) => Err(format!("in the model it stays: {row:?}")),
            None if message.letters != letters => {
                Err(format!("{letters} letters, and {} in the model", message.letters))
            }
            None => Ok(()),
        }
    }

    fn claimed(&mut self, change: &'a Change) -> Result<(), String> {
        let place = PLACES - 1 - self.last;
        self.state.slots[usize::from(slot_of(place))] = None;
        self.at(change, change.new.leased)?;
        self.take(0, Action::Claim { slot: slot_of(place), key: OWN })?;
        self.state = self.state.renumbered();
        let token = self.renamed(change)?;
        let run = (change.id, fence(change.new.deliveries, change.new.leased));
        self.holders[place] = Some(Holder {
            app: &change.app,
            token,
            claimed: change.new.leased,
            run: self.history.runs.get(&run),
        });
        self.last = place;
        Ok(())
    }

    /// A token is new on its row, as it is in the model.
    fn renamed(&mut self, change: &'a Change) -> Result<&'a str, String> {
        let token = change.new.token.as_deref().unwrap_or_default();
        if !self.used.insert(token) {
            return Err(format!("the token {token} is not fresh"));
        }
        self.token = Some(token);
        Ok(token)
    }

    /// The lease goes on, perhaps under another token: also that of a row whose letter could
    /// not be written, and which is to be condemned again.
    fn continued(&mut self, change: &'a Change) -> Result<(), String> {
        let place = self.place_of(change)?;
        self.receive(place)?;
        let slot = slot_of(place);
        let action = match change.act() {
            Act::Renew => Action::Extend { slot },
            _ if change.new.says_alone() && self.slot(place)?.case == Case::Guilty => {
                self.end(place, Verdict::TooOften)?;
                Action::Keep { slot }
            }
            _ if change.new.says_alone() => Action::Mark { slot },
            _ => {
                self.start(place)?;
                Action::Join { slot }
            }
        };
        self.at(change, change.new.leased)?;
        self.take(0, action)?;
        if change.act() == Act::Mark {
            let token = self.renamed(change)?;
            if let Some(holder) = &mut self.holders[place] {
                holder.token = token;
            }
        }
        Ok(())
    }

    /// Given back: to be due later, by a drain that dropped its handler, or unstarted.
    fn released(&mut self, change: &'a Change) -> Result<(), String> {
        let place = self.place_of(change)?;
        let not_before = self.holder(place)?.claimed + NOT_BEFORE;
        let (due, slot) = (change.new.due, slot_of(place));
        if due != change.old.due && due != not_before {
            let said = self.said(place, change)?;
            if let Some(verdict @ (Verdict::Fail | Verdict::Reject)) = said {
                self.end(place, verdict)?;
                self.at(change, due - ttl())?;
                self.token = None;
                return self.take(0, Action::Keep { slot });
            }
            let (verdict, now) = match said {
                // What its transaction undid, or what kept it from beginning.
                None | Some(Verdict::Ok) if self.queue == "tx" => {
                    (Verdict::Snooze, change.at.min(due - PUT_OFF.start()))
                }
                Some(verdict) => (verdict, due - micros(SNOOZE)),
                None => return Err("it is put off without a word of its handler".to_owned()),
            };
            let put_off = due - now == micros(SNOOZE) || PUT_OFF.contains(&(due - now));
            if !put_off {
                return Err(format!("it is put off by {}", due - now));
            }
            self.settle(place, verdict, change, now, due - now)?;
        } else if change.new.deliveries == change.old.deliveries {
            if !self.is_told_to_end(change) {
                return Err("its run counts, and nobody told it to end".to_owned());
            }
            self.start(place)?;
            self.state.now = change.at;
            self.take(0, Action::CutOff { slot })?;
            if let Some(row) = &mut self.state.messages[usize::from(OWN)].row {
                row.due = row.due.max(not_before);
            }
        } else if self.slot(place)?.phase == Phase::Sent {
            self.take(0, Action::Abandon { slot })?;
            self.holder(place)?.gave_back(change)?;
        } else {
            self.take(0, Action::Release { slot })?;
            self.holder(place)?.gave_back(change)?;
        }
        self.token = None;
        Ok(())
    }

    /// Sessions of SQLite have no names.
    fn is_told_to_end(&self, change: &Change) -> bool {
        let mut sent = self.history.signals.iter().filter(|it| it.app == *change.app);
        let told = sent.any(|it| it.signal == "TERM" && it.at <= change.at);
        told || self.history.store == Store::Sqlite
    }

    /// Who wrote it: whoever has the token on the row, or else had the row before.
    fn place_of(&self, change: &Change) -> Result<usize, String> {
        let known = self.history.store == Store::Postgres;
        let own = |place: &usize| {
            self.holders[*place].as_ref().is_some_and(|it| !known || it.app == &*change.app)
        };
        let holds = |place: &usize| {
            let holder = self.holders[*place].as_ref();
            holder.is_some_and(|it| Some(it.token) == self.token)
        };
        let places = || [self.last, PLACES - 1 - self.last].into_iter().filter(own);
        let place = places().find(holds).or_else(|| places().next());
        place.ok_or_else(|| "it has no delivery of it".to_owned())
    }

    fn settle(
        &mut self,
        place: usize,
        verdict: Verdict,
        change: &Change,
        now: i64,
        delay: i64,
    ) -> Result<(), String> {
        self.end(place, verdict)?;
        self.at(change, now)?;
        self.take(delay, Action::Settle { slot: slot_of(place), answered: true })
    }

    /// Its handler, if it was to run.
    fn end(&mut self, place: usize, verdict: Verdict) -> Result<(), String> {
        self.start(place)?;
        if self.slot(place)?.phase == Phase::Running {
            self.take(0, Action::Finish { slot: slot_of(place), verdict })?;
        }
        Ok(())
    }

    fn holder(&self, place: usize) -> Result<&Holder<'a>, String> {
        self.holders[place].as_ref().ok_or_else(|| "it has no delivery of it".to_owned())
    }

    fn said(&self, place: usize, change: &Change) -> Result<Option<Verdict>, String> {
        Ok(self.holder(place)?.said(self.history, change))
    }

    fn receive(&mut self, place: usize) -> Result<(), String> {
        if self.slot(place)?.phase == Phase::Sent {
            self.take(0, Action::Receive { slot: slot_of(place) })?;
        }
        Ok(())
    }

    /// It has begun, in time: whether it had is for H3 to say, by its handler's file.
    fn start(&mut self, place: usize) -> Result<(), String> {
        self.receive(place)?;
        let Slot { phase, case, deadline, ends, .. } = self.slot(place)?;
        if phase != Phase::Buffered {
            return Ok(());
        }
        self.state.now = deadline - 1;
        let slot = slot_of(place);
        let beside = usize::from(slot) + 1;
        // A suspect without its mark ran beside others, which wrote other rows.
        self.state.slots[beside] = (case == Case::Suspect).then_some(Slot {
            key: 1,
            token: 0,
            claim: 0,
            phase: Phase::Running,
            case: Case::Plain,
            deadline,
            ends,
        });
        let started = self.take(0, Action::Start { slot });
        self.state.slots[beside] = None;
        started
    }

    fn slot(&self, place: usize) -> Result<Slot<i64>, String> {
        let slot = self.state.slots[usize::from(slot_of(place))];
        slot.ok_or_else(|| "its delivery is over".to_owned())
    }

    fn at(&mut self, change: &Change, now: i64) -> Result<(), String> {
        self.state.now = now;
        within(change, now)
    }

    /// A step of the model.
    fn take(&mut self, delay: i64, action: Action) -> Result<(), String> {
        let rules = Rules {
            ttl: ttl(),
            delay,
            max_attempts: MAX_ATTEMPTS,
            max_deliveries: (self.queue == "crash").then_some(MAX_DELIVERIES),
            timers: if self.timer { 0b11 } else { 0 },
            delayed: 1 << OWN,
            hands: 2,
            mutant: None,
        };
        if !rules.allow(&self.state, action) {
            let slot = action.slot().and_then(|slot| self.state.slots[usize::from(slot)]);
            let (now, row) = (self.state.now, self.state.messages[usize::from(OWN)].row);
            return Err(format!("the model has no {action:?} at {now} of {row:?}, {slot:?}"));
        }
        (self.state, _) = rules.step(self.state, action);
        Ok(())
    }

    /// The model's row and the server's are the same.
    fn is(&self, side: &Side) -> Result<(), String> {
        let Some(row) = self.state.messages[usize::from(OWN)].row else {
            return Err("the model has no such row".to_owned());
        };
        let token = side.token.as_deref().filter(|token| !token.is_empty());
        let leased = token.map(|_| side.leased);
        let there = (side.due, side.deliveries, side.attempts, leased);
        let model = (row.due, row.deliveries, row.attempts, row.lease.map(|lease| lease.at));
        if there == model && token == self.token {
            return Ok(());
        }
        Err(format!(
            "due, deliveries, attempts and lease are {there:?}, and {model:?} in the model"
        ))
    }
}
