//! What the tables held after every step, to tell how far a crash set them back.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{Claim, Commits, Expects, Lease, PgStore, Store, new_token};
use outbox::{Outgoing, Publisher};
use outbox_tests::db::Db;
use outbox_tests::server::Server;
use sqlx::postgres::PgPoolOptions;

use super::statements::Settle;

/// The tables, and the store between two crashes.
pub struct Books<'a> {
    server: &'a Server,
    pub db: &'a Db,
    commits: Commits,
    pub store: PgStore,
    pub publisher: Publisher,
    claims: u32,
    steps: Vec<Step>,
}

struct Step {
    name: &'static str,
    /// What it did is on disk, and all before it.
    kept: bool,
    tables: Vec<String>,
}

/// Its connections have the application name `engine`.
fn store(db: &Db, commits: Commits) -> PgStore {
    let options = (*db.pg().connect_options()).clone().application_name("engine");
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    PgStore::with_commits(&pool, db.names.clone(), commits)
}

impl<'a> Books<'a> {
    pub async fn open(server: &'a Server, db: &'a Db, commits: Commits) -> Self {
        let publisher = Publisher::new(db.names.clone());
        let store = store(db, commits);
        let mut books =
            Self { server, db, commits, store, publisher, claims: 0, steps: Vec::new() };
        books.write("open", true).await;
        books
    }

    pub async fn publish(&mut self, count: i64) {
        self.db.send_all((0..count).map(|n| Outgoing::new("q", &n))).await;
        self.write("publish", true).await;
    }

    pub async fn claim(&mut self, limit: usize) -> Vec<Lease> {
        let of_queue = |queue: &str| Claim {
            queues: Arc::from([queue.to_owned()]),
            limit,
            lease_ttl: Duration::from_secs(600),
            token: new_token(),
            after: None,
            max_deliveries: None,
            expects: Expects::Few,
        };
        let claim = of_queue("q");
        // By each of the statements in turn.
        self.claims += 1;
        let claims = match self.claims % 4 {
            0 => vec![Claim { expects: Expects::Plenty, ..claim.clone() }],
            1 => vec![claim.clone()],
            2 => vec![Claim { expects: Expects::Many, ..claim.clone() }],
            _ => vec![claim.clone(), of_queue("nobody's")],
        };
        let taken = self.store.claim(&claims).await.unwrap().remove(0);
        assert_eq!(taken.rows.len(), limit, "they are all due");
        self.write("claim", false).await;
        taken.rows.iter().map(|one| Lease { id: one.row.id, token: claim.token }).collect()
    }

    pub async fn settle(&mut self, settle: Settle, leases: &[Lease]) {
        let landed = settle.run(self, leases).await;
        assert!(landed.iter().all(|hit| *hit), "{settle:?}: {landed:?}");
        let kept = self.commits == Commits::Default || settle == Settle::AckKept;
        self.write(settle.name(), kept).await;
    }

    async fn write(&mut self, name: &'static str, kept: bool) {
        let tables = self.tables().await;
        self.steps.push(Step { name, kept, tables });
    }

    /// Kills the server and starts it again. The tables are as they were after one of
    /// the steps, and that is none before the last one that is kept. Returns the steps
    /// that are undone.
    pub async fn crash(&mut self) -> Vec<&'static str> {
        self.server.kill().unwrap();
        self.server.start_again().unwrap();
        // Its connections are gone, as those of a process that starts now would be new.
        self.store = store(self.db, self.commits);
        let found = self.tables().await;
        let told = |step: &Step| step.tables == found;
        let at = self.steps.iter().rposition(told);
        let names: Vec<_> = self.steps.iter().map(|step| (step.name, step.kept)).collect();
        let at = at.unwrap_or_else(|| panic!("as after none of {names:?}: {found:#?}"));
        let undone: Vec<_> = self.steps[at + 1..].iter().map(|step| step.name).collect();
        assert!(!self.steps[at + 1..].iter().any(|step| step.kept), "{undone:?} of {names:?}");
        self.steps.clear();
        self.write("crash", true).await;
        undone
    }

    /// In one statement, so that they are of one moment. It writes nothing, so nothing
    /// gets to disk by it.
    async fn tables(&self) -> Vec<String> {
        let sql = "SELECT concat_ws(' ', 'row', id, queue, convert_from(payload, 'UTF8'),
                deliveries_count, attempts_count, next_attempt_at, acquired_at, acquired_token)
            FROM outbox
            UNION ALL SELECT concat_ws(' ', 'letter', original_id) FROM outbox_dlq
            ORDER BY 1";
        self.db.texts(sql).await
    }

    /// Ends all leases.
    pub async fn age(&mut self) {
        self.db.exec("UPDATE outbox SET acquired_at = acquired_at - interval '1 hour'").await;
        self.write("age", true).await;
    }
}
