//! Which messages are those of a flow.

use std::collections::HashMap;
use std::time::Duration;

use outbox_tests::frames::Frame;

use super::fault::FROZEN;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// All on all connections.
    All,
    /// Those of the first run of the statement that begins so, its preparation included.
    Statement(&'static str),
    /// Those of the first transaction, from its BEGIN to its end.
    Transaction,
}

impl What {
    /// How long a message is held.
    pub fn freeze(self) -> Duration {
        // A call has no lease that could run out meanwhile.
        if self == Self::All { FROZEN / 18 } else { FROZEN }
    }
}

/// A connection, and what it is at.
pub struct Line {
    pub number: usize,
    counts: bool,
    /// What is counted is executed: with the next "ready" it is over.
    executed: bool,
    /// The client has sent something since the server last did.
    asked: bool,
    /// The texts of the statements that are prepared, by their names.
    prepared: HashMap<Vec<u8>, Vec<u8>>,
}

impl Line {
    pub fn new(number: usize) -> Self {
        Self { number, counts: false, executed: false, asked: false, prepared: HashMap::new() }
    }

    /// The server sends something. True if it counts: of a call, only what each answer
    /// begins with.
    pub fn hears(&mut self, what: What) -> bool {
        let begins = std::mem::take(&mut self.asked);
        self.counts && (begins || what != What::All)
    }

    /// The client prepares a statement, perhaps: it may count when it is run.
    pub fn prepares(&mut self, frame: &Frame) {
        if frame.kind == Some(b'P') {
            let texts = frame.texts();
            self.prepared.insert(texts[0].to_vec(), texts[1].to_vec());
        }
    }

    /// The client sends it. True if it counts.
    pub fn sends(&mut self, what: What, frame: &Frame) -> bool {
        self.asked = true;
        let texts = || frame.texts();
        match what {
            What::All => self.counts = true,
            What::Transaction => {
                self.counts |= frame.kind == Some(b'Q') && texts()[0].starts_with(b"BEGIN");
            }
            What::Statement(start) => {
                let is_it = |text: &[u8]| text.starts_with(start.as_bytes());
                match frame.kind {
                    None => self.counts = false,
                    Some(b'Q') => self.counts = is_it(texts()[0]),
                    Some(b'P') => self.counts = is_it(texts()[1]),
                    Some(b'B') => {
                        self.counts = self.prepared.get(texts()[1]).is_some_and(|it| is_it(it));
                    }
                    Some(b'E') => self.executed |= self.counts,
                    _ => {}
                }
            }
        }
        self.counts
    }

    /// The server sends it, and what is counted is over by that.
    pub fn is_done(&self, what: What, frame: &Frame) -> bool {
        let ready = frame.kind == Some(b'Z');
        match what {
            What::All => false,
            What::Statement(_) => ready && self.executed,
            What::Transaction => ready && frame.bytes.last() == Some(&b'I'),
        }
    }
}
