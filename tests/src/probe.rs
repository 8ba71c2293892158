//! Handlers that tell the test what they do, and do what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Context, Subscriber};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use crate::db::Db;
use crate::wait::{eventually, soon};

/// A run of a handler, as it starts.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: i64,
    pub n: i64,
    pub deliveries: u64,
    pub attempts: u64,
    pub at: Instant,
    /// When the lease would run out, as the handler saw it at its start.
    pub lease_deadline: Instant,
    pub context: Context,
}

/// What the test holds of a handler: its starts, and the permits for its ends.
#[derive(Clone)]
pub struct Probe {
    starts: Arc<Mutex<UnboundedReceiver<Run>>>,
    /// A permit lets one run end.
    pub gate: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct Inside {
    probe: Probe,
    finished: bool,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.probe.running.fetch_sub(1, Ordering::SeqCst);
        let count = if self.finished { &self.probe.finished } else { &self.probe.dropped };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A subscriber of `queue` whose runs end at once.
pub fn free(name: &'static str, queue: &str) -> (Subscriber, Probe) {
    let (subscriber, probe) = gated(name, queue);
    probe.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    (subscriber, probe)
}

/// A subscriber of `queue` whose runs wait for permits.
pub fn gated(name: &'static str, queue: &str) -> (Subscriber, Probe) {
    with_result(name, queue, |_| Ok(()))
}

/// As [`gated`], with a result for each run.
pub fn with_result(
    name: &'static str,
    queue: &str,
    result: impl Fn(&Run) -> Result<(), String> + Send + Sync + 'static,
) -> (Subscriber, Probe) {
    let (sender, starts): (UnboundedSender<Run>, _) = unbounded_channel();
    let probe = Probe {
        starts: Arc::new(Mutex::new(starts)),
        gate: Arc::new(Semaphore::new(0)),
        running: Arc::default(),
        most: Arc::default(),
        finished: Arc::default(),
        dropped: Arc::default(),
    };
    let (inner, result) = (probe.clone(), Arc::new(result));
    let subscriber = Subscriber::new(name, queue, move |context: Context| {
        let (probe, sender, result) = (inner.clone(), sender.clone(), Arc::clone(&result));
        async move {
            let running = probe.running.fetch_add(1, Ordering::SeqCst) + 1;
            probe.most.fetch_max(running, Ordering::SeqCst);
            let mut inside = Inside { probe: probe.clone(), finished: false };
            let run = Run {
                id: context.id(),
                n: context.decode().unwrap_or(-1),
                deliveries: context.deliveries(),
                attempts: context.attempts(),
                at: Instant::now(),
                lease_deadline: context.lease_deadline(),
                context,
            };
            let _ = sender.send(run.clone());
            probe.gate.acquire().await.map_err(|_| "closed".to_owned())?.forget();
            inside.finished = true;
            result(&run)
        }
    });
    (subscriber, probe)
}

impl Probe {
    /// Has the only subscriber of a queue, whose runs end at once and that never polls, handle
    /// so many messages that it was woken for the last. It looks by itself when it starts, when
    /// it begins to listen and when it falls asleep: for what comes later it needs a wake.
    pub async fn falls_asleep(&self, db: &Db, queue: &str) {
        let left = format!("SELECT count(*) FROM outbox WHERE queue = '{queue}'");
        for _ in 0..4 {
            db.publish(queue, 0).await;
            self.start().await;
            eventually("it is settled", async || db.int(&*left).await == 0).await;
        }
    }

    /// The next run that starts.
    pub async fn start(&self) -> Run {
        soon("a handler starts", self.start_ever()).await
    }

    /// The next run, however long it takes.
    pub async fn start_ever(&self) -> Run {
        self.starts.lock().await.recv().await.unwrap()
    }

    /// The next `count` runs.
    pub async fn starts(&self, count: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(self.start().await);
        }
        runs
    }

    /// Runs that have started and were not asked for yet.
    pub async fn more(&self) -> Vec<Run> {
        let mut starts = self.starts.lock().await;
        std::iter::from_fn(|| starts.try_recv().ok()).collect()
    }

    pub fn let_end(&self, runs: usize) {
        self.gate.add_permits(runs);
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// The most runs there were at once.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    /// Runs whose future was dropped before its end.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}
