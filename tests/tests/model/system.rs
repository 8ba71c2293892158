//! A store that is taken along the steps of the model.

use std::collections::HashMap;
use std::time::Duration;

use outbox::testing::store::{
    Before, Claim, Death, Extend, Lease, Release, Retry, Store, new_alone_token, new_token,
};
use outbox::{FailureReason, Outgoing, Published};
use outbox_model::{self as model, Action, Case, Outcome, Rules, Settlement, Slot, State, Verdict};
use uuid::Uuid;

use crate::bench::{Steps, death, lease};
use crate::compare::{payload, timer_of};
use crate::machine::Effect;
use crate::operated::Operated;
use crate::step::{KEYS, RULES, SLOTS, Step};

pub type Model = State<KEYS, SLOTS>;

pub const QUEUE: &str = "q";
pub const TIMER: &str = "t";
/// What the model calls a tick. A sequence takes far less.
pub const TICK: Duration = Duration::from_secs(300);

pub struct System<B> {
    pub bench: B,
    rules: Rules,
    /// Of live rows, by message.
    pub ids: HashMap<u8, i64>,
    /// What the model's tokens are here, by message.
    pub tokens: HashMap<(u8, u8), Uuid>,
    /// What each slot holds, with the claim it comes from.
    held: HashMap<u8, (Lease, Claim)>,
    pub letters: Vec<Letter>,
}

/// A dead letter that has to be there.
pub struct Letter {
    pub key: u8,
    pub original: i64,
    pub deliveries: u8,
    pub reason: FailureReason,
    open: bool,
}

impl<B: Operated> System<B> {
    pub async fn begin(bench: &B, rules: Rules) -> Self {
        let bench = bench.emptied().await;
        let (ids, tokens, held) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { bench, rules, ids, tokens, held, letters: Vec::new() }
    }

    /// Does what the model did, and is told the same.
    pub async fn take(&mut self, step: &Step, effects: &[Effect]) {
        self.bench.tick().await;
        match step {
            Step::Claim { rows, .. } => self.claim(usize::from(*rows), effects).await,
            Step::LoseClaim { .. } => self.claim(1, effects).await,
            Step::Settle { .. } => self.settle(effects).await,
            Step::Extend { .. } => self.extend(effects).await,
            Step::Release { .. } | Step::CutOff { .. } => self.release(effects).await,
            _ => {
                for effect in effects {
                    self.act(effect).await;
                }
            }
        }
    }

    async fn act(&mut self, effect: &Effect) {
        let told = effect.outcome == Outcome::Told(true);
        match effect.action {
            Action::Tick => self.bench.age(TICK).await,
            Action::Publish { key } => match self.bench.send(message(key)).await {
                Published::Inserted(id) => {
                    assert!(told, "the timer name is taken");
                    self.ids.insert(key, id);
                }
                Published::Duplicate => assert!(!told, "the timer name is free"),
                other => panic!("{other:?}"),
            },
            Action::RollBack { key } => {
                let mut tx = self.bench.begin().await;
                self.bench.publisher().send(&mut tx, message(key)).await.unwrap();
                self.bench.rollback(tx).await;
            }
            Action::Cancel { key } => {
                let mut tx = self.bench.begin().await;
                let done = self.bench.publisher().cancel_timer(&mut tx, QUEUE, TIMER).await;
                self.bench.commit(tx).await;
                assert_eq!(done.unwrap(), told);
                if told {
                    self.ids.remove(&key);
                }
            }
            Action::Replay { key } => {
                let open = self.letters.iter_mut().find(|it| it.key == key && it.open).unwrap();
                let mut letters = self.bench.letters().await.into_iter();
                let letter = letters.find(|it| it.original_id == open.original).unwrap();
                assert_eq!(self.bench.replay(&letter).await, told);
                open.open = !told;
            }
            Action::Abandon { slot } => {
                let (_, claim) = self.held.remove(&slot).unwrap();
                let given_back = self.bench.store().abandon(&claim).await.unwrap();
                assert_eq!(given_back == 1, effect.outcome == Outcome::Landed(true));
            }
            // Of what is started only a suspect is written to.
            Action::Start { slot } | Action::Mark { slot } => {
                self.go_on(slot, new_alone_token(), effect).await;
            }
            Action::Join { slot } => self.go_on(slot, new_token(), effect).await,
            Action::Refuse { slot } => {
                let death = self.death(effect, slot);
                self.bench.refuse_letters(true).await;
                let refused = self.bench.store().bury(&[death]).await;
                self.bench.refuse_letters(false).await;
                // Where the lease is lost there may be no letter to be refused.
                let lease = row_of(effect, slot).and_then(|row| row.lease);
                let held = lease.is_some_and(|it| it.token == slot_of(&effect.before, slot).token);
                assert!(refused.map_or(true, |landed| !held && landed == [false]));
            }
            Action::Keep { slot } if is_condemned(effect, slot) => {
                self.go_on(slot, new_alone_token(), effect).await;
            }
            Action::Keep { slot } => {
                let lease = TICK * self.rules.ttl.into();
                let kept = self.given_back(effect, slot, Some(lease));
                let landed = self.bench.store().release(&[kept]).await.unwrap();
                assert_eq!(landed, [effect.outcome == Outcome::Landed(true)]);
                self.held.remove(&slot);
            }
            Action::Crash { worker } => {
                let rules = self.rules;
                self.held.retain(|slot, _| rules.worker_of(*slot) != worker);
            }
            _ => {}
        }
    }

    async fn claim(&mut self, rows: usize, effects: &[Effect]) {
        let max_deliveries = self.rules.max_deliveries.map(u64::from);
        let claim = Claim { max_deliveries, ..self.bench.claim_of(&[QUEUE], rows) };
        let got = self.bench.claim_by(&claim).await;
        let claims = effects.iter().filter_map(|effect| match (effect.action, effect.outcome) {
            (Action::Claim { slot, key }, Outcome::Claimed(before)) => {
                Some((slot, key, before, effect))
            }
            _ => None,
        });
        let claims: Vec<_> = claims.collect();
        let expected: Vec<_> = claims.iter().map(|(_, key, ..)| self.ids[key]).collect();
        assert_eq!(got.iter().map(|it| it.row.id).collect::<Vec<_>>(), expected, "rows in order");
        for (claimed, (slot, key, before, effect)) in got.iter().zip(claims) {
            let before = match before {
                model::Before::Settled => Before::Settled,
                model::Before::Expired => Before::Expired,
                model::Before::ExpiredAlone => Before::ExpiredAlone,
            };
            assert_eq!(claimed.before, before);
            let held = slot_of(&effect.after, slot);
            self.tokens.insert((key, held.token), claim.token);
            self.held.insert(slot, (lease(claimed), claim.clone()));
        }
        for effect in effects.iter().filter(|it| matches!(it.action, Action::Start { .. })) {
            self.act(effect).await;
        }
    }

    /// The lease goes on under another token, and may be in no hands any more.
    async fn go_on(&mut self, slot: u8, token: Uuid, effect: &Effect) {
        let Outcome::Landed(expected) = effect.outcome else { return };
        let (lease, claim) = self.held.remove(&slot).unwrap();
        let landed = self.bench.store().extend(&[Extend { lease, token }]).await.unwrap();
        assert_eq!(landed, [expected]);
        if !expected {
            return;
        }
        let key = slot_of(&effect.before, slot).key;
        let row = effect.after.messages[usize::from(key)].row.unwrap();
        self.tokens.insert((key, row.lease.unwrap().token), token);
        if effect.after.slots[usize::from(slot)].is_some() {
            self.held.insert(slot, (Lease { token, ..lease }, claim));
        }
    }

    async fn extend(&mut self, effects: &[Effect]) {
        let (slots, expected) = landed(effects);
        let leases = slots.iter().map(|slot| self.held[slot].0);
        let extends: Vec<_> = leases.map(|lease| Extend { lease, token: lease.token }).collect();
        assert_eq!(self.bench.store().extend(&extends).await.unwrap(), expected);
        for (slot, _) in slots.iter().zip(expected).filter(|(_, landed)| !landed) {
            self.held.remove(slot);
        }
    }

    async fn release(&mut self, effects: &[Effect]) {
        let condemned = |it: &Effect| it.action.slot().filter(|slot| is_condemned(it, *slot));
        for effect in effects {
            if let Some(slot) = condemned(effect) {
                self.go_on(slot, new_alone_token(), effect).await;
            }
        }
        let effects: Vec<_> = effects.iter().filter(|it| condemned(it).is_none()).collect();
        let (slots, expected) = landed(effects.iter().copied());
        let releases: Vec<_> = effects
            .iter()
            .zip(&slots)
            .map(|(effect, slot)| self.given_back(effect, *slot, None))
            .collect();
        assert_eq!(self.bench.store().release(&releases).await.unwrap(), expected);
        for slot in slots {
            self.held.remove(&slot);
        }
    }

    fn given_back(&self, effect: &Effect, slot: u8, due_in: Option<Duration>) -> Release {
        let deliveries = row_of(effect, slot).map_or(1, |row| row.deliveries);
        let uncount = match effect.action {
            // It has run.
            Action::CutOff { .. } => 0,
            _ => u64::from(deliveries - self.rules.given_back(deliveries)),
        };
        Release { lease: self.held[&slot].0, due_in, uncount, claimed_at: None }
    }

    /// A call for each kind, as the engine does.
    async fn settle(&mut self, effects: &[Effect]) {
        let kinds = [Settlement::Ack, Settlement::Retry, Settlement::Bury, Settlement::Snooze];
        for kind in kinds {
            let same = effects.iter().filter(|effect| kind_of(effect) == Some(kind));
            let same: Vec<Effect> = same.copied().collect();
            if same.is_empty() {
                continue;
            }
            let (slots, expected) = landed(&same);
            let leases: Vec<Lease> = slots.iter().map(|slot| self.held[slot].0).collect();
            let store = self.bench.store();
            let done = match kind {
                Settlement::Ack => store.ack(&leases).await,
                Settlement::Retry => {
                    let retries = leases.iter().zip(self.delays(leases.len()).await);
                    let retries = retries.map(|(&lease, delay)| Retry { lease, delay });
                    store.retry(&retries.collect::<Vec<_>>()).await
                }
                Settlement::Bury => {
                    let deaths = same.iter().zip(&slots).map(|(it, slot)| self.death(it, *slot));
                    store.bury(&deaths.collect::<Vec<_>>()).await
                }
                Settlement::Snooze => {
                    let back = same.iter().zip(&slots).zip(self.delays(leases.len()).await);
                    let back = back.map(|((it, slot), by)| self.given_back(it, *slot, Some(by)));
                    store.release(&back.collect::<Vec<_>>()).await
                }
            };
            assert_eq!(done.unwrap(), expected, "{kind:?}");
            self.settled(kind, &same);
        }
    }

    /// Of the rows of a batch: which is due first is not promised, so it is made sure by a
    /// little. Before that so much time passes that they come behind all other rows.
    async fn delays(&self, rows: usize) -> Vec<Duration> {
        const LITTLE: Duration = Duration::from_millis(500);
        let rows = u32::try_from(rows).unwrap();
        if rows > 1 {
            self.bench.age(LITTLE * rows).await;
        }
        (0..rows).rev().map(|behind| TICK * self.rules.delay.into() - LITTLE * behind).collect()
    }

    fn settled(&mut self, kind: Settlement, effects: &[Effect]) {
        let mut buried = Vec::new();
        for effect in effects {
            let Action::Settle { slot, answered } = effect.action else { continue };
            let held = slot_of(&effect.before, slot);
            if effect.outcome == Outcome::Landed(true) && kind == Settlement::Bury {
                let deliveries = row_of(effect, slot).unwrap().deliveries;
                let (original, reason) = (self.ids[&held.key], self.death(effect, slot).reason);
                buried.push(Letter { key: held.key, original, deliveries, reason, open: true });
            }
            let gone = effect.after.messages[usize::from(held.key)].row.is_none();
            if effect.outcome == Outcome::Landed(true) && gone {
                self.ids.remove(&held.key);
            }
            if answered {
                self.held.remove(&slot);
            }
        }
        self.letters.extend(buried);
        self.letters.sort_by_key(|letter| letter.original);
    }

    fn death(&self, effect: &Effect, slot: u8) -> Death<'static> {
        let reason = match slot_of(&effect.before, slot).phase {
            model::Phase::Done(Verdict::TooOften) => FailureReason::MaxDeliveries,
            model::Phase::Done(Verdict::Reject) => FailureReason::Rejected,
            _ => FailureReason::RetryTerminal,
        };
        Death { reason, ..death(self.held[&slot].0) }
    }
}

fn message(key: u8) -> Outgoing {
    let message = Outgoing::raw(QUEUE, payload(key)).header("key", key.to_string());
    let message = message.delay(TICK * RULES.delay_of(key).into());
    timer_of(key).into_iter().fold(message, Outgoing::timer_id)
}

/// The slots that wrote, and whether their writes hit.
fn landed<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> (Vec<u8>, Vec<bool>) {
    let hit = |effect: &Effect| effect.outcome == Outcome::Landed(true);
    effects.into_iter().filter_map(|effect| Some((effect.action.slot()?, hit(effect)))).unzip()
}

fn slot_of(state: &Model, slot: u8) -> Slot {
    state.slots[usize::from(slot)].unwrap()
}

/// The row that a slot has, or had.
fn row_of(effect: &Effect, slot: u8) -> Option<model::Row> {
    let key = slot_of(&effect.before, slot).key;
    effect.before.messages[usize::from(key)].row
}

/// Not to run, though nothing says so in the end.
fn is_condemned(effect: &Effect, slot: u8) -> bool {
    slot_of(&effect.before, slot).case == Case::Guilty
}

fn kind_of(effect: &Effect) -> Option<Settlement> {
    let Action::Settle { slot, .. } = effect.action else { return None };
    let slot = slot_of(&effect.before, slot);
    match slot.phase {
        model::Phase::Done(verdict) => Some(RULES.settlement(&effect.before, &slot, verdict)),
        _ => None,
    }
}
