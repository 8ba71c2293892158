//! Records of one row, as a test wants them.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::every_change_is_a_step_of_the_model as follow;
use crate::args::Store;
use crate::history::{Biz, Change, History, Op, Run, Side};
use crate::lease::fence;
use crate::size::Sizes;

pub(in crate::check) const MS: i64 = 1_000;
pub(in crate::check) const BEGUN: i64 = 1_000_000_000;

/// What the audit says of one row, written by whoever the test wants.
pub(in crate::check) struct Record {
    pub(in crate::check) history: History,
    pub(in crate::check) queue: &'static str,
    pub(in crate::check) now: i64,
    pub(in crate::check) row: Side,
    /// Of the last claim.
    fence: i64,
}

impl Record {
    /// Published at once.
    pub(in crate::check) fn of(queue: &'static str) -> Self {
        let history = History {
            store: Store::Postgres,
            changes: Vec::new(),
            leases: Vec::new(),
            runs: BTreeMap::new(),
            biz: HashMap::new(),
            effects: Vec::new(),
            cancelled: Vec::new(),
            left: Vec::new(),
            letters: Vec::new(),
            events: Vec::new(),
            exits: Vec::new(),
            signals: Vec::new(),
            sizes: Sizes::new(),
            done: Vec::new(),
            broken: Vec::new(),
            quiet: (0, 0),
        };
        let mut record = Self { history, queue, now: BEGUN, row: Side::default(), fence: 0 };
        let biz = Biz { queue: queue.into(), act: "Ok".into(), delay: 0, called: BEGUN };
        record.history.biz.insert("k".into(), biz);
        record.write("p0", Op::Insert, Side { due: BEGUN, ..Side::default() });
        record
    }

    pub(in crate::check) fn write(&mut self, app: &str, op: Op, new: Side) -> &mut Self {
        let old = std::mem::replace(&mut self.row, new.clone());
        self.history.changes.push(Change {
            seq: i64::try_from(self.history.changes.len()).unwrap(),
            at: self.now + MS,
            stmt: self.now - MS,
            xid: 0,
            app: app.into(),
            op,
            id: 7,
            queue: self.queue.into(),
            key: Some(Rc::from("k")),
            timer: None,
            body: None,
            reason: None,
            old,
            new,
        });
        self
    }

    pub(in crate::check) fn update(
        &mut self,
        app: &str,
        change: impl FnOnce(&mut Side, i64),
    ) -> &mut Self {
        let mut new = self.row.clone();
        change(&mut new, self.now);
        self.write(app, Op::Update, new)
    }

    pub(in crate::check) fn after(&mut self, time: i64) -> &mut Self {
        self.now += time;
        self
    }

    pub(in crate::check) fn claim(&mut self, app: &str, token: &str) -> &mut Self {
        self.after(20 * MS).update(app, |row, now| {
            row.token = Some(token.into());
            row.leased = now;
            row.deliveries += 1;
        });
        self.fence = fence(self.row.deliveries, self.row.leased);
        self
    }

    /// The last claim's handler ran, and said this.
    pub(in crate::check) fn run(&mut self, app: &str, word: &str) -> &mut Self {
        self.starts(app);
        let run = self.history.runs.get_mut(&(7, self.fence)).unwrap();
        run.ended = Some((self.now + 9 * MS, word.to_owned()));
        self
    }

    /// Its handler has begun, and came to nothing.
    pub(in crate::check) fn starts(&mut self, app: &str) -> &mut Self {
        let (fence, begun, ended) = (self.fence, self.now + MS, None);
        let key = Rc::from("k");
        let (batch, plain) = (false, false);
        let run = Run { app: app.into(), id: 7, fence, key, batch, plain, begun, ended, starts: 1 };
        self.history.runs.insert((7, fence), run);
        self
    }

    pub(in crate::check) fn renew(&mut self, app: &str) -> &mut Self {
        self.after(700 * MS).update(app, |row, now| row.leased = now)
    }

    pub(in crate::check) fn mark(&mut self, app: &str, token: &str) -> &mut Self {
        self.after(20 * MS).update(app, |row, now| {
            row.token = Some(token.into());
            row.leased = now;
        })
    }

    pub(in crate::check) fn free(row: &mut Side) {
        (row.token, row.leased) = (None, 0);
    }

    pub(in crate::check) fn retry(&mut self, app: &str, delay: i64) -> &mut Self {
        self.after(20 * MS).update(app, |row, now| {
            row.due = now + delay;
            row.attempts += 1;
            Self::free(row);
        })
    }

    pub(in crate::check) fn release(&mut self, app: &str, uncounted: i64) -> &mut Self {
        self.after(20 * MS).update(app, |row, _| {
            row.deliveries -= uncounted;
            if uncounted == 0 {
                row.due = row.leased + MS;
            }
            Self::free(row);
        })
    }

    pub(in crate::check) fn delete(&mut self, app: &str) -> &mut Self {
        self.after(20 * MS).write(app, Op::Delete, Side::default())
    }

    pub(in crate::check) fn letter(&mut self, app: &str) -> &mut Self {
        let row = self.row.clone();
        self.write(app, Op::Letter, Side::default());
        self.row = row;
        self
    }

    #[track_caller]
    pub(in crate::check) fn is_right(&self) {
        let verdict = follow(&self.history);
        let changes = self.history.changes.iter().filter(|change| change.op != Op::Letter);
        assert_eq!((verdict.tested, verdict.broken), (changes.count(), Vec::new()));
    }

    #[track_caller]
    pub(in crate::check) fn is_wrong(&self, why: &str) {
        let broken = follow(&self.history).broken;
        assert!(broken.len() == 1 && broken[0].contains(why), "{broken:?}");
    }
}
