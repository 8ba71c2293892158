//! Reads it all, when the run is over.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use anyhow::Result;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::{Biz, Change, History, Op, Run, Side};
use crate::args::Store;
use crate::faults::open;
use crate::journal::{self, EVENTS, Line, RUNS};
use crate::lease::Lease;
use crate::world::World;

const AUDIT: &str = "SELECT seq, at, stmt, xid, app, op, id, queue, key, timer, body, reason,
    old_token, new_token, old_leased, new_leased, old_due, new_due, old_deliveries,
    new_deliveries, old_attempts, new_attempts FROM audit ORDER BY seq";

macro_rules! load {
    ($connection:expr, $history:expr) => {{
        let (connection, history) = ($connection, $history);
        let mut names = Names::default();
        for row in sqlx::query(AUDIT).fetch_all(&mut *connection).await? {
            let side = |first: usize| -> Result<Side> {
                Ok(Side {
                    token: row.try_get(first)?,
                    leased: row.try_get::<Option<i64>, _>(first + 2)?.unwrap_or_default(),
                    due: row.try_get::<Option<i64>, _>(first + 4)?.unwrap_or_default(),
                    deliveries: row.try_get::<Option<i64>, _>(first + 6)?.unwrap_or_default(),
                    attempts: row.try_get::<Option<i64>, _>(first + 8)?.unwrap_or_default(),
                })
            };
            let key: Option<String> = row.try_get(8)?;
            history.changes.push(Change {
                seq: row.try_get(0)?,
                at: row.try_get(1)?,
                stmt: row.try_get(2)?,
                xid: row.try_get(3)?,
                app: names.shared(row.try_get(4)?),
                op: match row.try_get::<&str, _>(5)? {
                    "INSERT" => Op::Insert,
                    "UPDATE" => Op::Update,
                    "DELETE" => Op::Delete,
                    _ => Op::Letter,
                },
                id: row.try_get(6)?,
                queue: names.shared(row.try_get(7)?),
                key: key.map(Rc::from),
                timer: row.try_get(9)?,
                body: row.try_get(10)?,
                reason: row.try_get(11)?,
                old: side(12)?,
                new: side(13)?,
            });
        }
        let biz = "SELECT key, queue, act, delay, called FROM biz";
        for row in sqlx::query(biz).fetch_all(&mut *connection).await? {
            let (delay, called) = (row.try_get(3)?, row.try_get(4)?);
            let biz = Biz { queue: row.try_get(1)?, act: row.try_get(2)?, delay, called };
            history.biz.insert(row.try_get(0)?, biz);
        }
        let effects = match history.store {
            Store::Postgres => "SELECT key, xid::text::bigint FROM effect",
            Store::Sqlite => "SELECT key, 0 FROM effect",
        };
        for row in sqlx::query(effects).fetch_all(&mut *connection).await? {
            history.effects.push((row.try_get(0)?, row.try_get(1)?));
        }
        let cancelled = sqlx::query_scalar("SELECT key FROM cancelled");
        history.cancelled = cancelled.fetch_all(&mut *connection).await?;
        let key = "coalesce(headers->>'key', '')";
        let left = AssertSqlSafe(format!("SELECT id, {key} FROM outbox"));
        for row in sqlx::query(left).fetch_all(&mut *connection).await? {
            history.left.push((row.try_get(0)?, row.try_get(1)?));
        }
        for row in sqlx::query("SELECT id, body FROM letters").fetch_all(&mut *connection).await? {
            history.letters.push((row.try_get(0)?, row.try_get(1)?));
        }
    }};
}

/// Names stand in many rows.
#[derive(Default)]
struct Names(HashMap<String, Rc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.0.get(name) {
            return Rc::clone(known);
        }
        let shared: Rc<str> = name.into();
        self.0.insert(name.to_owned(), Rc::clone(&shared));
        shared
    }
}

impl History {
    pub async fn load(world: &World, quiet: (i64, i64)) -> Result<Self> {
        let mut history = Self {
            store: world.store,
            changes: Vec::new(),
            leases: Vec::new(),
            runs: runs(journal::read(&world.folder, RUNS)?),
            biz: HashMap::new(),
            effects: Vec::new(),
            cancelled: Vec::new(),
            left: Vec::new(),
            letters: Vec::new(),
            events: journal::read(&world.folder, EVENTS)?,
            exits: world.fleet.exits(),
            signals: world.fleet.signals(),
            sizes: world.fleet.sizes.lock().unwrap().clone(),
            done: world.done(),
            broken: world.breaks(),
            quiet,
        };
        match world.store {
            Store::Postgres => {
                let mut admin: PgConnection = world.admin().await?;
                load!(&mut admin, &mut history);
                admin.close().await?;
            }
            Store::Sqlite => {
                let mut file: SqliteConnection = open(world).await?;
                load!(&mut file, &mut history);
                file.close().await?;
                history.allow_for_stops();
            }
        }
        history.leases = Lease::all(&history.changes, &history.runs);
        Ok(history)
    }
}

fn runs(lines: Vec<Line>) -> BTreeMap<(i64, i64), Run> {
    let mut runs: BTreeMap<(i64, i64), Run> = BTreeMap::new();
    for line in lines {
        let (id, fence) = (line.number(1), line.number(2));
        if line.word(0) == "begun" {
            let run = runs.entry((id, fence)).or_insert_with(|| Run {
                app: line.app.as_str().into(),
                id,
                fence,
                key: line.word(4).into(),
                batch: line.word(3) == "batch",
                plain: line.word(3) == "plain",
                begun: line.at,
                ended: None,
                starts: 0,
            });
            run.starts += 1;
        } else if let Some(run) = runs.get_mut(&(id, fence)) {
            run.ended = Some((line.at, line.word(3).to_owned()));
        }
    }
    runs
}
