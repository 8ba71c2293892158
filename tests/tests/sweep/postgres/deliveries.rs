//! Flows that the engine does: from a claim to the settlement.

use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{PATIENCE, eventually, soon};
use sqlx::postgres::PgConnectOptions;

use super::fault::{Counts, Fault, SHORT_LEASE};
use super::run::{Flow, Played, sweep};
use super::stage::Stage;
use super::work::{FIRST, PROBE, Work, Worker};

macro_rules! swept {
    ($($test:ident: $work:ident,)*) => {
        on_postgres!($($test),*);
        $(async fn $test(db: &Db) {
            sweep(db, Work::$work, stringify!($work)).await;
        })*

        const ALL: &[Work] = &[$(Work::$work),*];
    };
}

swept! {
    a_claim_survives_a_fault_at_any_message: Claim,
    a_claim_behind_a_wake_survives_a_fault_at_any_message: ClaimFew,
    a_claim_of_a_large_row_survives_a_fault_at_any_message: ClaimLarge,
    a_claim_of_a_backlog_survives_a_fault_at_any_message: ClaimFull,
    an_ack_survives_a_fault_at_any_message: Ack,
    a_batch_of_acks_survives_a_fault_at_any_message: BatchAck,
    an_ack_that_publishes_survives_a_fault_at_any_message: AckPublishing,
    a_retry_survives_a_fault_at_any_message: Retry,
    a_dead_letter_survives_a_fault_at_any_message: DeadLetter,
    a_snooze_survives_a_fault_at_any_message: Snooze,
    a_drain_survives_a_fault_at_any_message: Drain,
    an_extension_survives_a_fault_at_any_message: Extend,
    a_lent_transaction_survives_a_fault_at_any_message: Transaction,
}

/// Cases of all of them, at least.
pub fn floor() -> usize {
    ALL.iter().map(|work| work.cases()).sum()
}

impl Flow for Work {
    const LEASED: bool = true;

    fn floor(self) -> Counts {
        self.floor()
    }

    async fn play(self, database: PgConnectOptions, fault: Option<Fault>) -> Played {
        let stage = Stage::set(&database).await;
        let cut = fault.is_none_or(|fault| fault.kind.cuts());
        let lease = if cut { self.lease() } else { SHORT_LEASE };
        let worker = Worker::of(self, &stage, lease);
        let app = App::postgres(stage.pool.clone()).names(stage.names.clone());
        let app = app.only([worker.subscriber()]);
        // A start looks, in a transaction, if there is a pooler. No lent one comes before
        // there is a message. And the first claim knows nothing of what there is.
        let waits = self.is_of_one_that_waits();
        if !waits {
            self.publish(&stage).await;
            stage.proxy.arm(self.what(), fault);
        } else if self != Work::Transaction {
            stage.publish([FIRST]).await;
        }
        let mut running = soon("it starts", app.start()).await.unwrap();
        if waits {
            eventually("it waits", async || stage.rows().await == 0).await;
            stage.proxy.arm(self.what(), fault);
            self.publish(&stage).await;
        }
        if self == Work::Drain {
            eventually("a handler runs", async || worker.notes.runs_of(1) > 0).await;
            worker.gate.add_permits(PERMITS);
            soon("it stops", running.stop()).await.unwrap();
            // A lease that ran out is nobody's.
            let live = format!(
                "SELECT count(*) FROM outbox
                 WHERE acquired_at > clock_timestamp() - {} * interval '1 millisecond'",
                lease.as_millis()
            );
            assert_eq!(stage.int(live).await, 0, "a lease is left behind");
            running = soon("it starts again", app.start()).await.unwrap();
        }
        eventually("all is settled", async || stage.rows().await == 0).await;
        // The answer may still be on its way.
        let over = || stage.proxy.has_struck() || stage.proxy.is_done();
        eventually("the messages are exchanged", async || over()).await;
        // A handler that loses its lease on a busy machine sends fewer of them.
        let struck = stage.proxy.has_struck();
        stage.publish([PROBE]).await;
        worker.gate.add_permits(PERMITS);
        eventually("it goes on", async || stage.rows().await == 0).await;
        stage.is_outside_transactions().await;
        soon("it stops", running.stop()).await.unwrap();
        let counts = stage.proxy.counts();

        let mut wrong = stage.violations(lease, true).await;
        let acked = stage.acked().await;
        wrong.extend(worker.notes.violations(&acked));
        assert!(wrong.is_empty(), "{wrong:#?}");
        self.check(&stage).await;
        if let (None, Some(written)) = (fault, self.written_together()) {
            let rows = stage.first_written(written).await;
            assert!(rows > 1, "{rows} is no batch: {written}");
        }
        let again = (1..=self.messages()).any(|n| worker.notes.runs_of(n) > self.runs());
        if cut {
            assert!(!again || self.may_run_again(), "a handler ran again");
            // Nobody here waits for as long as a lease: what came back came before its end.
            assert!(PATIENCE < lease || self == Work::Extend);
        }
        let is_early = stage.proxy.is_early();
        stage.strike().await;
        Played { counts, again, struck, is_early }
    }
}

/// More than there are messages.
const PERMITS: usize = 100;

impl Work {
    async fn publish(self, stage: &Stage) {
        if self == Self::ClaimLarge {
            let large = " ".repeat(300_000) + "1";
            stage.send(1, Outgoing::raw("q", large)).await;
        } else {
            stage.publish(1..=self.messages()).await;
        }
    }

    /// What else there is in the end, once for each message.
    async fn check(self, stage: &Stage) {
        let receipts = stage.int("SELECT count(*) FROM outbox WHERE queue = 'receipts'").await;
        let done = stage.int("SELECT count(*) FROM done").await;
        let letters = stage.int("SELECT count(*) FROM outbox_dlq").await;
        let of = |holds: bool| if holds { self.messages() } else { 0 };
        assert_eq!(receipts, of(matches!(self, Self::AckPublishing | Self::Transaction)));
        assert_eq!(done, of(self == Self::Transaction));
        assert_eq!(letters, of(self == Self::DeadLetter));
    }
}
