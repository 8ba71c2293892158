//! What lies in the tables is what lies in the model.

use std::time::Duration;

use serde_json::json;

use crate::bench::{RawLetter, RawRow, about};
use crate::operated::Operated;
use crate::step::RULES;
use crate::system::{Model, QUEUE, System, TICK, TIMER};

impl<B: Operated> System<B> {
    pub async fn compare(&mut self, model: &Model) {
        let now = self.bench.now().await;
        let mut rows = self.bench.rows().await;
        for (key, message) in (0..).zip(&model.messages) {
            let at = rows.iter().position(|row| row.payload == payload(key));
            assert_eq!(at.is_some(), message.row.is_some(), "whether the row of {key} is there");
            let (Some(at), Some(expected)) = (at, message.row) else { continue };
            let row = rows.remove(at);
            // A row that was replayed has a new id.
            assert_eq!(*self.ids.entry(key).or_insert(row.id), row.id);
            self.compare_row(key, &row, expected, (now, model.now));
        }
        assert!(rows.is_empty(), "rows that nobody published: {rows:?}");
        self.compare_letters(model).await;
    }

    fn compare_row(&self, key: u8, row: &RawRow, expected: outbox_model::Row, now: (i64, u8)) {
        let ago = |time: u8, actual: i64| {
            let ticks = i64::from(now.1) - i64::from(time);
            let tick = i64::try_from(TICK.as_micros()).unwrap();
            about(now.0 - actual - ticks * tick, Duration::ZERO);
        };
        let counts = (expected.deliveries.into(), expected.attempts.into());
        assert_eq!((row.deliveries, row.attempts), counts, "deliveries and attempts of {key}");
        let token = expected.lease.map(|lease| self.tokens[&(key, lease.token)]);
        assert_eq!(row.token, token, "the token of {key}");
        assert_eq!(row.acquired.is_some(), token.is_some());
        if let (Some(lease), Some(acquired)) = (expected.lease, row.acquired) {
            ago(lease.at, acquired);
        }
        ago(expected.due, row.due);
        let failed = expected.attempts > 0;
        assert_eq!((row.first.is_some(), row.last.is_some()), (failed, failed));
        assert_eq!((&*row.queue, row.timer_id.as_deref()), (QUEUE, timer_of(key)));
        assert_eq!(row.headers.as_ref().unwrap()["key"], json!(key.to_string()));
    }

    async fn compare_letters(&self, model: &Model) {
        let mut letters = self.bench.letters().await;
        // Those of one batch come in any order.
        letters.sort_by_key(|letter| letter.original_id);
        assert_eq!(letters.len(), self.letters.len(), "letters");
        for (letter, expected) in letters.iter().zip(&self.letters) {
            let RawLetter { original_id, deliveries, .. } = *letter;
            assert_eq!((original_id, deliveries), (expected.original, expected.deliveries.into()));
            assert_eq!(letter.payload, payload(expected.key));
            assert_eq!(letter.reason, expected.reason.as_str());
            let timer = timer_of(expected.key);
            assert_eq!((&*letter.queue, letter.timer_id.as_deref()), (QUEUE, timer));
            assert_eq!(letter.headers.as_ref().unwrap()["key"], json!(expected.key.to_string()));
        }
        let open: u8 = model.messages.iter().map(|message| message.letters).sum();
        if !letters.is_empty()
            && let Some(told) = self.bench.open_letters().await
        {
            assert_eq!(told, i64::from(open), "open letters");
        }
    }
}

pub fn payload(key: u8) -> Vec<u8> {
    vec![0, b'#', key]
}

pub fn timer_of(key: u8) -> Option<&'static str> {
    RULES.is_timer(key).then_some(TIMER)
}
