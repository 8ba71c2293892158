//! Looks at the database the moment something is told, from outside.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use outbox_tests::capture;
use outbox_tests::db::Db;
use sqlx::{AnyConnection, Connection};

/// What the database held when an event was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Gone,
    Free,
    Leased,
}

pub struct Witness {
    seen: Arc<Mutex<Vec<(String, Row, bool)>>>,
}

type Question = (i64, Sender<(Row, bool)>);

impl Witness {
    /// Watches the events of a queue. Whoever logs waits until it has looked.
    pub fn of(db: &Db, queue: &str) -> Self {
        let (ask, questions) = channel();
        let url = db.url.clone();
        std::thread::spawn(move || answer(&url, &questions));
        let (ask, queue) = (Mutex::new(ask), queue.to_owned());
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let noted = Arc::clone(&seen);
        capture::hook(move |line| {
            let (Some(event), Some(id)) = (line.event(), line.get("row_id")) else { return };
            if line.get("queue") != Some(&queue) {
                return;
            }
            let (reply, replied) = channel();
            ask.lock().unwrap().send((id.parse().unwrap(), reply)).unwrap();
            let (row, letter) = replied.recv().unwrap();
            noted.lock().unwrap().push((event.to_owned(), row, letter));
        });
        Self { seen }
    }

    /// The row, and whether there was a dead letter of it, at an event.
    pub fn at(&self, event: &str) -> (Row, bool) {
        let seen = self.seen.lock().unwrap();
        let mut of_event = seen.iter().filter(|(name, ..)| name == event);
        let Some(&(_, row, letter)) = of_event.next() else { panic!("no {event}: {seen:?}") };
        assert!(of_event.next().is_none(), "{event} was told twice");
        (row, letter)
    }
}

fn answer(url: &str, questions: &Receiver<Question>) {
    sqlx::any::install_default_drivers();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut connection = runtime.block_on(AnyConnection::connect(url)).unwrap();
    while let Ok((id, reply)) = questions.recv() {
        let sql = |text: &str| sqlx::AssertSqlSafe(text.replace("$id", &id.to_string()));
        let row = sql("SELECT count(*), count(acquired_token) FROM outbox WHERE id = $id");
        let letter = sql("SELECT count(*) FROM outbox_dlq WHERE original_id = $id");
        let (rows, leased): (i64, i64) =
            runtime.block_on(sqlx::query_as(row).fetch_one(&mut connection)).unwrap();
        let letters: i64 =
            runtime.block_on(sqlx::query_scalar(letter).fetch_one(&mut connection)).unwrap();
        let row = match (rows, leased) {
            (0, _) => Row::Gone,
            (_, 0) => Row::Free,
            _ => Row::Leased,
        };
        reply.send((row, letters == 1)).unwrap();
    }
}
