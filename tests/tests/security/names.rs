//! 500 names of queues, timers and headers: refused with a word of what is wrong, or taken
//! all the way: published, handled, a dead letter, replayed, handled again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use outbox::dlq::{Filter, Replay};
use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{Context, DeadLetter, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::hostile::names;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;

on_both!(names_in_rows_are_refused_or_taken_all_the_way);

/// A message with a hostile name in every place that takes one.
#[derive(Clone, PartialEq, Debug)]
struct Hostile {
    queue: String,
    timer: String,
    header: String,
}

impl Hostile {
    fn all() -> Vec<Self> {
        let names = names();
        assert_eq!(names.len(), 500);
        let at = |n: usize| names[n % names.len()].clone();
        (0..500).map(|n| Self { queue: at(n), timer: at(n + 1), header: at(n + 2) }).collect()
    }

    fn fits(name: &str) -> bool {
        (1..=255).contains(&name.chars().count()) && !name.contains('\0')
    }

    /// As the columns hold them.
    fn is_good(&self) -> bool {
        Self::fits(&self.queue) && Self::fits(&self.timer) && !self.header.contains('\0')
    }

    fn payload(&self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }

    fn message(&self) -> Outgoing {
        let message = Outgoing::raw(&*self.queue, self.payload()).timer_id(&*self.timer);
        message.header(&*self.header, &*self.queue)
    }

    fn of(context: &Context) -> Self {
        let mut own = context.headers().iter().filter(|(_, value)| *value == context.queue());
        Self {
            queue: context.queue().to_owned(),
            timer: context.timer_id().unwrap_or_default().to_owned(),
            header: own.next().map(|(name, _)| name.to_owned()).unwrap_or_default(),
        }
    }
}

/// What each run saw, by the queue.
type Seen = Arc<Mutex<HashMap<String, Vec<Hostile>>>>;

/// Fails, unless the message is replayed.
fn subscriber(queues: Vec<String>, seen: &Seen) -> Subscriber {
    let seen = Arc::clone(seen);
    let handle = move |context: Context| {
        let mut all = seen.lock().unwrap();
        all.entry(context.queue().to_owned()).or_default().push(Hostile::of(&context));
        let replayed = context.headers().replays() > 0;
        async move { if replayed { Ok(()) } else { Err("not yet") } }
    };
    Subscriber::new("hostile", queues, handle).retry(NoRetry)
}

fn good() -> Vec<Hostile> {
    let good: Vec<_> = Hostile::all().into_iter().filter(Hostile::is_good).collect();
    assert!((300..480).contains(&good.len()), "{} of 500 can be taken", good.len());
    good
}

fn queues(all: &[Hostile]) -> Vec<String> {
    all.iter().map(|one| one.queue.clone()).collect()
}

async fn names_in_rows_are_refused_or_taken_all_the_way(db: &Db) {
    db.exec("CREATE TABLE biz (n bigint)").await;
    db.exec("INSERT INTO biz VALUES (7)").await;
    let operator = outbox_tests::roles::operator(db, db.names.clone());
    for hostile in Hostile::all() {
        // One bad name does not hide in the company of others.
        let published = operator.publish(hostile.message()).await;
        assert_eq!(published.is_ok(), hostile.is_good(), "{hostile:?}: {published:?}");
        if let Err(error) = published {
            assert!(matches!(error, outbox::Error::Publish(_)), "{hostile:?}: {error}");
        }
    }
    let (good, seen) = (good(), Seen::default());
    let running = db.app().only([subscriber(queues(&good), &seen)]).start().await.unwrap();
    db.drained().await;
    let letters = operator.dead_letters();
    for hostile in &good {
        let filter = Filter::new().queue(&*hostile.queue);
        let page = letters.list(&filter, None, 10).await.unwrap();
        let [letter] = &page.letters[..] else { panic!("{hostile:?}: {page:?}") };
        assert_eq!(letter.timer_id.as_ref(), Some(&hostile.timer));
        let opened = letters.show(letter.id).await.unwrap().unwrap();
        assert_eq!(opened.payload, hostile.payload());
        let header = opened.headers().unwrap().get(&hostile.header).map(str::to_owned);
        assert_eq!(header.as_ref(), Some(&hostile.queue), "{hostile:?}");
    }
    let report = letters.replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept), (good.len() as u64, 0));
    eventually("each was handled twice", async || {
        seen.lock().unwrap().values().all(|runs| runs.len() == 2)
    })
    .await;
    db.drained().await;
    running.stop().await.unwrap();
    for hostile in &good {
        let runs = &seen.lock().unwrap()[&hostile.queue];
        assert!(runs.iter().all(|run| run == hostile), "{hostile:?}: {runs:?}");
    }
    assert_eq!(db.int("SELECT n FROM biz").await, 7);
}

/// The same on the memory store, which has no operator: what is replayed is published
/// anew from the letter.
#[tokio::test]
async fn names_in_rows_of_the_test_broker() {
    let (good, seen) = (good(), Seen::default());
    let broker = TestBroker::with([subscriber(queues(&good), &seen)]);
    for hostile in Hostile::all() {
        let published = broker.publish_with(hostile.message()).await;
        assert_eq!(published.is_ok(), hostile.is_good(), "{hostile:?}: {published:?}");
    }
    let letters: Vec<DeadLetter> = broker.dlq_rows();
    assert_eq!(letters.len(), good.len());
    for (hostile, letter) in good.iter().zip(letters) {
        assert_eq!(
            (&letter.queue, letter.timer_id.as_ref()),
            (&hostile.queue, Some(&hostile.timer))
        );
        assert_eq!(letter.payload, hostile.payload());
        let again = Outgoing::raw(letter.queue.clone(), letter.payload.clone())
            .timer_id(letter.timer_id.clone().unwrap())
            .headers(&letter.headers().unwrap())
            .header("outbox-replays", "1");
        broker.publish_with(again).await.unwrap();
    }
    assert!(broker.rows().is_empty());
    for hostile in &good {
        assert_eq!(seen.lock().unwrap()[&hostile.queue], [hostile.clone(), hostile.clone()]);
    }
}
