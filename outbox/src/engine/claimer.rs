//! The claimer: the task of a process that looks for rows. It decides which subscribers claim, and
//! when. One statement claims for all subscribers that want rows at that moment; `lanes` says how
//! many such statements may be under way. What a claim has taken goes into the subscribers'
//! inboxes, and their workers take it from there.
//!
//! Each subscriber has a [`Look`], which makes its claims. A claim whose answer was lost may have
//! taken rows all the same: see `lost`.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::inbox::Job;
use super::lanes::Lanes;
use super::look::{Company, Look};
use super::lost::{LAST_TRY, Lost};
use super::results::Sender;
use super::settling::Settling;
use super::{Reader, Shared, leave_to_others};
use crate::error::StoreError;
use crate::store::{Claim, Store, Taken};
use crate::telemetry::{TARGET, error};

/// Rows that one statement asks for, at most, from subscribers that expect plenty.
const ROWS: usize = 1000;
const A_FEW: usize = 10;

/// A statement that claims, for one subscriber or several.
struct Round {
    /// Indices of the readers.
    readers: Vec<usize>,
    claims: Vec<Claim>,
    sent: Instant,
    /// Claims without an answer: they may have taken rows, though the statement failed.
    lost: Vec<Lost>,
}

/// Claims until `stop`, then closes the inboxes and gives back the rows that no worker has started.
/// It waits for a claim under way, because the rows of that claim would stay leased.
pub(super) async fn run<S: Store>(
    shared: Arc<Shared<S>>,
    readers: Vec<Arc<Reader>>,
    changed: Arc<Notify>,
    results: Sender,
    stop: CancellationToken,
) {
    let mut looks: Vec<_> =
        readers.iter().map(|it| Look::new(it, shared.store.wakes_only_sleepers())).collect();
    let (mut lanes, mut under_way) = (Lanes::default(), FuturesUnordered::new());
    let (turn, mut lost) = (Mutex::new(()), FuturesUnordered::new());
    let mut late = FuturesUnordered::new();
    let mut first = 0;
    while !stop.is_cancelled() {
        let now = Instant::now();
        let mut ends = None;
        for reader in &readers {
            let (jobs, at) = reader.inbox.late(now);
            ends = at.into_iter().chain(ends).min();
            if !jobs.is_empty() {
                late.push(give_back_late(reader, jobs, &results));
            }
        }
        while lanes.free(under_way.len(), now)
            && let Some(round) = next_round(&mut looks, &mut first, now)
        {
            under_way.push(send(&shared, round));
        }
        let next = if lanes.free(under_way.len(), now) {
            looks.iter().filter_map(|look| look.next(now)).min()
        } else {
            lanes.opens_at(now)
        };
        let next = next.into_iter().chain(ends).min();
        let alarm = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some((mut round, answer)) = under_way.next() => {
                let crowded = answer.iter().flatten().any(|taken| taken.crowded);
                lanes.answered(crowded, Instant::now());
                let again = round.lost.drain(..).map(|one| one.keep_trying(&shared, &turn, &stop));
                lost.extend(again);
                answered(&mut looks, round, answer);
            }
            Some(given_back) = lost.next() => {
                if let Some(at) = given_back {
                    looks[at].reader.signal.wake();
                }
            }
            Some(()) = late.next() => {}
            () = changed.notified() => {}
            () = alarm => {}
        }
    }
    for reader in &readers {
        reader.inbox.end_gathering();
    }
    // Lost claims go on meanwhile: each may hold the connection that a claim under way waits for.
    while !under_way.is_empty() {
        tokio::select! {
            biased;
            Some((mut round, answer)) = under_way.next() => {
                lost.extend(round.lost.drain(..).map(|one| one.keep_trying(&shared, &turn, &stop)));
                answered(&mut looks, round, answer);
            }
            Some(_) = lost.next() => {}
            Some(()) = late.next() => {}
        }
    }
    let mut unstarted = pin!(async {
        while late.next().await.is_some() {}
        give_back_unstarted(&readers, &results).await;
    });
    loop {
        tokio::select! {
            biased;
            () = unstarted.as_mut() => break,
            Some(_) = lost.next() => {}
        }
    }
    let _ = timeout(LAST_TRY, async { while lost.next().await.is_some() {} }).await;
}

/// Gives back rows that no worker has come to in time: another process may have a free worker.
async fn give_back_late(reader: &Arc<Reader>, jobs: Vec<Job>, results: &Sender) {
    for job in jobs {
        reader.waited_too_long(job.claimed.row.id);
        results.send(Settling::of(reader, &job).unstarted()).await;
    }
}

/// Closes the inboxes and gives back what is in them.
async fn give_back_unstarted(readers: &[Arc<Reader>], results: &Sender) {
    for reader in readers {
        for job in reader.inbox.close() {
            results.send(Settling::of(reader, &job).unstarted()).await;
        }
    }
}

/// The next statement, if a subscriber wants rows. The subscriber that came first in the last
/// statement comes last in this one.
fn next_round(looks: &mut [Look], first: &mut usize, now: Instant) -> Option<Round> {
    // A poll takes along those that would poll soon: idle subscribers cost one statement.
    let poll = looks.iter().any(|look| look.polls(now));
    let again = looks.iter().any(|look| look.tries_soon(now) && look.wants(now));
    let mut round = Round { readers: Vec::new(), claims: Vec::new(), sent: now, lost: Vec::new() };
    let (count, mut rows) = (looks.len(), 0);
    for at in (*first..count).chain(0..*first) {
        let look = &mut looks[at];
        let along = poll && look.polls_soon(now) || again && look.tries_soon(now);
        if !(look.wants(now) || along) || rows >= ROWS {
            continue;
        }
        // Of subscribers that do not expect plenty, only the first of the statement may ask for
        // many rows.
        let plenty = look.expects_plenty();
        let most = match (round.claims.is_empty(), plenty) {
            (true, _) => ROWS,
            (false, true) => ROWS - rows,
            (false, false) => A_FEW,
        };
        // A subscriber that claims alone joins no others: the database may refuse a whole statement
        // because of one of its claims.
        if look.is_alone() && !round.claims.is_empty() {
            continue;
        }
        if let Some(claim) = look.claim(most, now) {
            rows += if plenty { claim.limit } else { 0 };
            round.readers.push(at);
            round.claims.push(claim);
            if look.is_alone() {
                break;
            }
        }
    }
    *first = round.readers.first().map_or(*first, |at| (at + 1) % count);
    (!round.claims.is_empty()).then_some(round)
}

type Answer = Result<Vec<Taken>, StoreError>;

async fn send<S: Store>(shared: &Shared<S>, mut round: Round) -> (Round, Answer) {
    let result = shared.store.claim(&round.claims).await;
    if result.as_ref().is_err_and(|failed| !failed.transient) {
        // The table of pauses may be gone, and the statements can do without it. A failure of this
        // look does not matter: why the claim was refused is logged in any case.
        let _ = shared.store.validate(false).await;
    }
    // The rows may be leased all the same, and nobody else knows the tokens.
    if result.as_ref().is_err_and(|failed| failed.transient && failed.perhaps_done) {
        let mut answers = true;
        for (claim, &reader) in round.claims.iter().zip(&round.readers) {
            // It may have been sent only now: before that it waits for a connection.
            let lost = Lost { claim: claim.clone(), reader, sent: Instant::now() };
            // After one failure the others would fail too.
            let given_back = if answers { lost.give_back(shared).await } else { None };
            answers = given_back.is_some();
            if given_back != Some(true) {
                round.lost.push(lost);
            }
        }
    }
    (round, result)
}

fn answered(looks: &mut [Look], round: Round, result: Answer) {
    let Round { readers, claims, sent, .. } = round;
    let now = Instant::now();
    match result {
        Ok(taken) => {
            // Before the workers are woken: the last of them would start on this thread at once.
            if taken.iter().any(|taken| !taken.rows.is_empty()) {
                leave_to_others();
            }
            let probed = readers.iter().any(|&at| looks[at].company == Company::Probes);
            for ((at, claim), taken) in readers.into_iter().zip(&claims).zip(taken) {
                let look = &mut looks[at];
                look.answered(claim, &taken, sent, now);
                let deadline = sent + claim.lease_ttl;
                let claimed_at = taken.at.unwrap_or(now);
                let job = |claimed| Job { claimed, claimed_at, deadline };
                let jobs = taken.rows.into_iter().map(job);
                look.reader.inbox.fill(claim.limit, jobs);
            }
            if probed {
                // The database answers. So it is one of the others that makes their statement fail.
                let others = looks.iter_mut().filter(|look| look.failures.are_many());
                others.for_each(|look| look.company = Company::Alone);
            }
        }
        Err(failed) => {
            // A statement that is refused for several subscribers is tried for each of them alone,
            // at once. If statements for several take too long again and again, one claim may be to
            // blame, or the database is away. Then only one subscriber is tried alone, so that
            // nobody asks much more often. It is the one that has failed least: its answer tells
            // about the others.
            let often = readers.iter().any(|&at| looks[at].failures.are_many());
            let least = readers.iter().copied().min_by_key(|&at| looks[at].failures.in_a_row);
            let probes = least.filter(|_| often && readers.len() > 1 && failed.transient);
            let alone = readers.len() > 1 && !failed.transient;
            let rests = readers.iter().zip(&claims).filter(|_| !alone);
            let rest =
                rests.map(|(&at, claim)| looks[at].failures.again(&failed, claim.limit)).max();
            let until = now + rest.unwrap_or_default();
            let names: Vec<_> =
                readers.iter().map(|&at| looks[at].reader.subscriber.name()).collect();
            error!(
                target: TARGET, subscriber = few(&names), error = %failed,
                "claiming failed; trying again"
            );
            for (at, claim) in readers.into_iter().zip(&claims) {
                let look = &mut looks[at];
                look.reader.inbox.fill(claim.limit, std::iter::empty());
                look.failed(claim, &failed, now.duration_since(sent));
                look.schedule.not_before = until;
            }
            if let Some(at) = probes {
                looks[at].company = Company::Probes;
            }
        }
    }
}

/// The first names, and how many more there are.
fn few(names: &[&str]) -> String {
    const TOLD: usize = 3;
    let more = names.len().saturating_sub(TOLD);
    let told = names[..names.len() - more].join(", ");
    if more == 0 { told } else { format!("{told} and {more} more") }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::Company::{Alone, Others, Probes};
    use super::*;
    use crate::engine::tests::unanswered::{Claims, Unanswered, holding, reader};

    fn round(looks: &mut [Look], readers: &[usize]) -> Round {
        let now = Instant::now();
        let claims = readers.iter().filter_map(|&at| looks[at].claim(10, now)).collect();
        Round { readers: readers.to_vec(), claims, sent: now, lost: Vec::new() }
    }

    /// The claims of one subscriber take too long; those of the others do not.
    #[tokio::test(start_paused = true)]
    async fn who_has_failed_least_probes_and_its_answer_sets_the_others_apart() {
        let shared = Unanswered::new(&holding(0).await, Claims::Answered).shared();
        let changed = Arc::default();
        let mut looks: Vec<_> = ["slow", "quick", "other"]
            .map(|queue| Look::new(&reader(&shared, queue, &changed), false))
            .into();
        let late = || Err(StoreError::new("claim", "no answer", true));
        let company = |looks: &[Look]| [0, 1, 2].map(|at| looks[at].company);
        for _ in 0..3 {
            let alone = round(&mut looks, &[0]);
            answered(&mut looks, alone, late());
        }
        let all = round(&mut looks, &[0, 1, 2]);
        answered(&mut looks, all, late());
        assert_eq!(company(&looks), [Others, Probes, Others]);
        let probe = round(&mut looks, &[1]);
        answered(&mut looks, probe, Ok(vec![Taken::default()]));
        assert_eq!(company(&looks), [Alone, Others, Others]);
        let slow = round(&mut looks, &[0]);
        answered(&mut looks, slow, late());
        assert_eq!(company(&looks), [Alone, Others, Others]);
    }
}
