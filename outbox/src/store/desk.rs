//! What operators ask and do, by statements that are alike on both databases. Each driver has the
//! texts of these statements in its folder `sql`. Work that differs by more than the text has files
//! of its own.
//!
//! This is a macro: as generic functions they would have the type of each parameter of each
//! statement among their bounds. The `desk.rs` of a driver calls it and has what it relies on:
//!
//! | name | what it is |
//! |---|---|
//! | `query`, `Statement` | a statement, to be bound |
//! | `once` | the same; on PostgreSQL it is planned each time, for the filter that it has |
//! | `time`, `ids`, `most` | a time, ids, a limit, each as the driver binds it |
//! | `read` of the desk | all rows of the answer, read by index |
//! | `ask` of the desk | the same, for a doctor; he asks `has_letters`, too |
//! | `writing`, `begin` of the desk | a transaction that writes; one that does so by index |
//! | `claim::read` | a row of the outbox out of the first columns of an answer |

macro_rules! desk {
    ($desk:ident, $pool:ty) => {
        /// What operators do, on this database. What is alike on both is in `store::desk`; each
        /// kind of other work has a file of its own.
        #[derive(Debug, Clone)]
        pub(crate) struct $desk {
            pool: $pool,
            pub(super) names: $crate::store::names::TableNames,
        }

        const _: () = {
            use std::collections::HashMap;

            use super::claim::read;
            use super::query;
            use $crate::dlq::{
                Filter, Groups, LetterPosition, Mark, Opened, Status, Unmarked, narrowed,
            };
            use $crate::error::StoreError;
            use $crate::message::Row;
            use $crate::ops::doctor::{Extent, Waiting};
            use $crate::ops::{BEFORE, CancelledTimer, FoundRow, Letter, Pause, Peeked, QueueInfo};
            use $crate::store::answers::{
                self, Columns, id_and_status, letter_in_short, opened, pause, place, queue,
                totals_and_problem, unmarked,
            };
            use $crate::store::names::TableNames;
            use $crate::store::{Result, sql};

            /// The conditions of a filter, for every statement over one. SQLite's say how likely
            /// they are, because a likely condition narrows less: without that, it takes any index
            /// for a good one where nobody ran ANALYZE.
            const WHERE: &str = include_str!("sql/letters_where.sql");
            const WHY: &str = "ask why";
            /// How often a timer is looked at that is given back each time.
            const CANCELS: u32 = 5;

            impl $desk {
                pub(crate) fn new(pool: $pool, names: &TableNames) -> Self {
                    Self { pool, names: names.clone() }
                }

                pub(crate) fn pool(&self) -> &$pool {
                    &self.pool
                }

                /// The database's time.
                pub(crate) async fn clock(&self) -> Result<SystemTime> {
                    const ACTION: &str = "ask for the time";
                    let clock = query(&sql!(self.names, "clock"));
                    let now = self.read(ACTION, clock, |row| row.time(0)).await?.pop();
                    now.ok_or_else(|| StoreError::of(ACTION)(sqlx::Error::RowNotFound))
                }
            }

            /// What a doctor counts. Where there is no table for dead letters, there are none.
            impl $desk {
                pub(crate) async fn waiting(&self) -> Result<Vec<Waiting>> {
                    let count = |row: &_| Ok((Columns::text(row, 0)?, Columns::count(row, 1)?));
                    let waiting = query(&sql!(self.names, "doctor/waiting"));
                    let rows = self.ask(waiting, count).await?;
                    let mut letters = Vec::new();
                    if self.has_letters().await? {
                        let waiting = query(&sql!(self.names, "doctor/waiting_letters"));
                        letters = self.ask(waiting, count).await?;
                    }
                    Ok(Waiting::of(rows, letters))
                }

                /// The extents of the rows and of the dead letters.
                pub(crate) async fn extents(&self) -> Result<[Option<Extent>; 2]> {
                    let extent = |row: &_| {
                        Ok(Extent { rows: Columns::count(row, 0)?, last: Columns::number(row, 1)? })
                    };
                    let all = query(&sql!(self.names, "doctor/extent"));
                    let rows = self.ask(all, extent).await?.pop();
                    let mut letters = None;
                    if self.has_letters().await? {
                        let all = query(&sql!(self.names, "doctor/extent_letters"));
                        letters = self.ask(all, extent).await?.pop();
                    }
                    Ok([rows, letters])
                }
            }

            /// Dead letters: what is read of them, marked and purged.
            impl $desk {
                /// A statement over the letters of a filter. The filter's words are its first
                /// parameters.
                fn over(&self, text: &str, filter: &Filter, after: bool) -> Statement {
                    let wants =
                        |word: &str| if word == "after" { after } else { filter.wants(word) };
                    once(&narrowed(&self.names, text, WHERE, wants))
                        .bind(filter.ids.as_deref().map(ids))
                        .bind(filter.queue.clone())
                        .bind(filter.reason.clone())
                        .bind(filter.error_kind.clone())
                        .bind(filter.fingerprint.clone())
                        .bind(filter.since.map(time))
                        .bind(filter.until.map(time))
                }

                /// A statement over the letters behind a place. The place is its next two
                /// parameters.
                pub(super) fn behind(
                    &self,
                    text: &str,
                    filter: &Filter,
                    after: Option<LetterPosition>,
                ) -> Statement {
                    self.over(text, filter, after.is_some())
                        .bind(after.map(|after| time(after.failed_at)))
                        .bind(after.map(|after| after.id))
                }

                pub(crate) async fn open_letter(&self, id: i64) -> Result<Option<Opened>> {
                    let open = query(&sql!(self.names, "letters_open")).bind(id);
                    Ok(self.read("open a dead letter", open, opened).await?.pop())
                }

                pub(crate) async fn count_letters(&self, filter: &Filter) -> Result<u64> {
                    let count = self.over(include_str!("sql/letters_count.sql"), filter, false);
                    let counts = self.read("count dead letters", count, |row| row.count(0));
                    Ok(counts.await?.pop().unwrap_or_default())
                }

                pub(crate) async fn statuses(
                    &self,
                    filter: &Filter,
                ) -> Result<HashMap<i64, Status>> {
                    let statuses = self.over(include_str!("sql/letters_status.sql"), filter, false);
                    let pairs = self.read("look for dead letters", statuses, id_and_status).await?;
                    // Of two letters of one id, the open one counts.
                    let mut statuses = HashMap::new();
                    for (id, status) in pairs {
                        let known = statuses.entry(id).or_insert(status);
                        if status == Status::Failed {
                            *known = status;
                        }
                    }
                    Ok(statuses)
                }

                /// Which of these rows are in the outbox.
                pub(crate) async fn live(&self, rows: &[i64]) -> Result<Vec<i64>> {
                    let live = query(&sql!(self.names, "letters_live")).bind(ids(rows));
                    self.read("look for replayed rows", live, |row| row.number(0)).await
                }

                /// Which of these rows have become letters.
                pub(crate) async fn failed_again(
                    &self,
                    rows: &[i64],
                    since: SystemTime,
                ) -> Result<Vec<i64>> {
                    let text = sql!(self.names, "letters_again");
                    let mut again = Vec::new();
                    for status in Status::ALL {
                        let look =
                            query(&text).bind(ids(rows)).bind(time(since)).bind(status.as_str());
                        let action = "look for letters of replayed rows";
                        again.extend(self.read(action, look, |row| row.number(0)).await?);
                    }
                    Ok(again)
                }

                pub(crate) async fn groups(&self, filter: &Filter, limit: i64) -> Result<Groups> {
                    let groups = self.over(include_str!("sql/letters_groups.sql"), filter, false);
                    let groups = groups.bind(limit);
                    let groups = self.read("group dead letters", groups, totals_and_problem);
                    Ok(answers::groups(groups.await?))
                }

                pub(crate) async fn unmarked(
                    &self,
                    after: Option<LetterPosition>,
                    limit: i64,
                ) -> Result<Vec<Unmarked>> {
                    let text = include_str!("sql/letters_unmarked.sql");
                    let look = query(&narrowed(&self.names, text, "", |_| after.is_some()))
                        .bind(after.map(|after| time(after.failed_at)))
                        .bind(after.map(|after| after.id))
                        .bind(limit);
                    self.read("look for letters without a fingerprint", look, unmarked).await
                }

                /// Returns where the letters stood.
                pub(crate) async fn mark(
                    &self,
                    filter: &Filter,
                    after: Option<LetterPosition>,
                    mark: &Mark,
                    limit: i64,
                ) -> Result<Vec<LetterPosition>> {
                    let write = self
                        .behind(include_str!("sql/letters_mark.sql"), filter, after)
                        .bind(mark.status.as_str())
                        .bind(mark.note.clone())
                        .bind(limit);
                    self.move_on("mark dead letters", write).await
                }

                /// Returns where the letters stood.
                pub(crate) async fn purge(
                    &self,
                    filter: &Filter,
                    after: Option<LetterPosition>,
                    limit: i64,
                ) -> Result<Vec<LetterPosition>> {
                    let purge = self.behind(include_str!("sql/letters_purge.sql"), filter, after);
                    self.move_on("purge dead letters", purge.bind(limit)).await
                }

                /// Runs a statement that writes a batch of letters. Each letter is in the answer,
                /// with its place.
                async fn move_on(
                    &self,
                    action: &'static str,
                    statement: Statement,
                ) -> Result<Vec<LetterPosition>> {
                    let failed = StoreError::of(action);
                    let mut tx = self.begin(action).await?;
                    let rows = statement.fetch_all(&mut *tx).await.map_err(&failed)?;
                    tx.commit().await.map_err(&failed)?;
                    rows.iter().map(|row| place(row).map_err(&failed)).collect()
                }
            }

            /// Rows, timers and queues; and why a row is where it is.
            impl $desk {
                pub(crate) async fn peek(
                    &self,
                    queue: &str,
                    rows: i64,
                    bytes: i64,
                ) -> Result<Vec<Peeked>> {
                    let peek = query(&sql!(self.names, "peek"));
                    let peek = peek.bind(queue.to_owned()).bind(rows).bind(bytes);
                    self.read("peek", peek, |row| {
                        Ok(Peeked::of(read(row)?, row.count(13)?, row.time(14)?))
                    })
                    .await
                }

                /// Whether there is a row with this timer's name.
                pub(crate) async fn has_timer(&self, queue: &str, timer_id: &str) -> Result<bool> {
                    let row = query(&sql!(self.names, "timer_row"));
                    let row = row.bind(queue.to_owned()).bind(timer_id.to_owned());
                    Ok(!self.read("look for a timer", row, |_| Ok(())).await?.is_empty())
                }

                pub(crate) async fn cancel_timer(
                    &self,
                    queue: &str,
                    timer_id: &str,
                ) -> Result<CancelledTimer> {
                    let failed = StoreError::of("cancel a timer");
                    let delete = sql!(self.names, "cancel_timer");
                    let look = sql!(self.names, "timer_row");
                    let mut tx = self.writing("cancel a timer").await?;
                    let bound = |text| {
                        let once = query(text).persistent(false);
                        once.bind(queue.to_owned()).bind(timer_id.to_owned())
                    };
                    for _ in 0..CANCELS {
                        let deleted = bound(&delete).execute(&mut *tx).await;
                        if deleted.map_err(&failed)?.rows_affected() > 0 {
                            tx.commit().await.map_err(failed)?;
                            return Ok(CancelledTimer::Cancelled);
                        }
                        let row = bound(&look).fetch_optional(&mut *tx).await;
                        let Some(row) = row.map_err(&failed)? else {
                            return Ok(CancelledTimer::Absent);
                        };
                        // A claim may have given it back between the two statements.
                        if row.flag(1).map_err(&failed)? {
                            return Ok(CancelledTimer::Leased {
                                id: row.number(0).map_err(failed)?,
                            });
                        }
                    }
                    let why = "claims take the timer and give it back all the time; try again";
                    Err(StoreError::new("cancel a timer", why, true))
                }

                pub(crate) async fn queues(&self, limit: i64) -> Result<Vec<QueueInfo>> {
                    let queues = query(&sql!(self.names, "queues")).bind(limit);
                    self.read("name the queues", queues, queue).await
                }

                pub(crate) async fn paused(&self) -> Result<Vec<Pause>> {
                    let paused = query(&sql!(self.names, "paused"));
                    self.read("list the pauses", paused, |row| pause(row, true)).await
                }

                pub(crate) async fn why_row(&self, id: i64) -> Result<Option<FoundRow>> {
                    let found = query(&sql!(self.names, "why_row")).bind(id);
                    let found = self.read(WHY, found, |row| {
                        let note = row.maybe(16, Columns::text)?;
                        Ok(FoundRow {
                            row: read(row)?,
                            now: row.time(13)?,
                            locker: row.text(14)?,
                            paused: row.maybe(15, Columns::time)?.map(|at| (at, note)),
                        })
                    });
                    Ok(found.await?.pop())
                }

                pub(crate) async fn why_letters(
                    &self,
                    id: i64,
                    limit: Option<i64>,
                ) -> Result<Vec<Letter>> {
                    let letters = query(&sql!(self.names, "why_letters"));
                    self.read(WHY, letters.bind(id).bind(most(limit)), letter_in_short).await
                }

                /// Whether there are more letters than this.
                pub(crate) async fn why_more_letters(&self, read: i64) -> Result<bool> {
                    let more = query(&sql!(self.names, "why_more_letters")).bind(read);
                    let more = self.read(WHY, more, |row| row.flag(0)).await?.pop();
                    Ok(more.unwrap_or_default())
                }

                /// How many free rows are claimed before this one, and whether there are more.
                pub(crate) async fn why_before(&self, row: &Row) -> Result<(u64, bool)> {
                    let before = query(&sql!(self.names, "why_before"))
                        .bind(row.queue.clone())
                        .bind(time(row.next_attempt_at))
                        .bind(row.id)
                        .bind(BEFORE);
                    let counts =
                        self.read(WHY, before, |row| Ok((row.count(0)?, row.number(1)? >= BEFORE)));
                    Ok(counts.await?.pop().unwrap_or_default())
                }

                /// Deletes rows that a measurement has put into a queue, and returns how many.
                pub(crate) async fn clean_load(&self, queue: &str, rows: i64) -> Result<u64> {
                    let failed = StoreError::of("clean up");
                    let clean = query(&sql!(self.names, "bench_clean")).persistent(false);
                    let clean = clean.bind(queue.to_owned()).bind(rows);
                    let mut tx = self.writing("clean up").await?;
                    let deleted = clean.execute(&mut *tx).await.map_err(&failed)?;
                    tx.commit().await.map_err(failed)?;
                    Ok(deleted.rows_affected())
                }
            }
        };
    };
}
pub(crate) use desk;
