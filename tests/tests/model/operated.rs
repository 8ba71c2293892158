//! What operators do to the stores, and what a sequence needs between two steps.

use std::time::{Duration, Instant};

use outbox::dlq::{Filter, Replay};
use outbox::ops::Operator;
use outbox::{Outgoing, Published};

use crate::bench::{Bench, Memory, Postgres, RawLetter, SqlBench, Sqlite, Steps};

pub trait Operated: Bench {
    /// The same tables with nothing in them.
    async fn emptied(&self) -> Self;
    /// Whether the letter's message is a row again.
    async fn replay(&self, letter: &RawLetter) -> bool;
    /// Letters that nobody dealt with, where the store knows of it.
    async fn open_letters(&self) -> Option<i64>;
    /// Letters are refused from now on, or taken again.
    async fn refuse_letters(&self, refuse: bool) {
        if refuse {
            self.break_dlq().await;
        } else {
            self.mend_dlq().await;
        }
    }

    /// Until the clock shows another time, so that no two steps have the same. The
    /// coarsest counts milliseconds.
    async fn tick(&self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            tokio::task::yield_now().await;
        }
    }
}

/// It has no operators, so a replay is another publish; and its clock stands still.
impl Operated for Memory {
    async fn emptied(&self) -> Self {
        Self::open().await.unwrap()
    }

    async fn replay(&self, letter: &RawLetter) -> bool {
        let mut again = Outgoing::raw(&letter.queue, letter.payload.clone());
        if let Some(timer) = &letter.timer_id {
            again = again.timer_id(timer);
        }
        for (name, value) in letter.headers.iter().flat_map(|it| it.as_object().unwrap()) {
            again = again.header(name, value.as_str().unwrap());
        }
        self.send(again).await != Published::Duplicate
    }

    async fn open_letters(&self) -> Option<i64> {
        None
    }

    async fn tick(&self) {
        self.age(Duration::from_millis(1)).await;
    }
}

impl Operated for Sqlite {
    async fn emptied(&self) -> Self {
        self.execute("DELETE FROM outbox; DELETE FROM outbox_dlq").await;
        self.clone()
    }

    async fn replay(&self, letter: &RawLetter) -> bool {
        replay(Operator::sqlite(self.pool().clone(), self.names().clone()), letter).await
    }

    async fn open_letters(&self) -> Option<i64> {
        Some(self.number(OPEN).await)
    }
}

impl Operated for Postgres {
    async fn emptied(&self) -> Self {
        self.execute("TRUNCATE outbox, outbox_dlq").await;
        self.clone()
    }

    async fn replay(&self, letter: &RawLetter) -> bool {
        replay(Operator::postgres(self.pool().clone(), self.names().clone()), letter).await
    }

    async fn open_letters(&self) -> Option<i64> {
        Some(self.number(OPEN).await)
    }

    /// It counts microseconds, and a statement takes longer.
    async fn tick(&self) {}
}

const OPEN: &str =
    "SELECT count(*) FROM outbox_dlq WHERE status = 'failed' AND replayed_id IS NULL";

async fn replay(operator: Operator, letter: &RawLetter) -> bool {
    let one = Filter::new().ids([letter.id]);
    let report = operator.dead_letters().replay(&one, &Replay::new()).await.unwrap();
    assert_eq!(report.replayed + report.kept, 1, "{report:?}");
    report.replayed == 1
}
