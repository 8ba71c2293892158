//! W3C Trace Context, in the headers of a message.

use crate::message::Headers;
use crate::message::headers::{TRACEPARENT, TRACESTATE, Text, is_inherited};

/// A place in a trace.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// 32 hex digits, the same for the whole trace.
    pub(super) id: String,
    /// 16 hex digits: the parent of the next message.
    pub(super) parent: String,
    /// 2 hex digits.
    pub(super) flags: String,
    pub(super) state: Option<String>,
}

impl Trace {
    /// Reads the headers of a message, if its `traceparent` is well-formed.
    pub(crate) fn read(headers: &Headers) -> Option<Self> {
        let place = Self::parse(headers.get(TRACEPARENT)?)?;
        let state = headers.get(TRACESTATE).filter(|state| is_inherited(state)).map(str::to_owned);
        Some(Self { state, ..place })
    }

    /// Reads `00-<trace>-<parent>-<flags>`.
    fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let version = hex(parts.next()?, 2).filter(|version| version != "ff")?;
        let (id, parent) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let flags = hex(parts.next()?, 2)?;
        // Only a later version may say more.
        if version == "00" && parts.next().is_some() {
            return None;
        }
        Some(Self { id, parent, flags, state: None })
    }

    /// The same trace, one step on.
    pub(crate) fn child(self) -> Self {
        Self { parent: format!("{:016x}", fastrand::u64(1..)), ..self }
    }

    /// The place before the step that [`child`](Self::child) made: what this header said.
    pub(crate) fn before(&self, traceparent: &str) -> Option<Self> {
        Some(Self { state: self.state.clone(), ..Self::parse(traceparent)? })
    }

    /// Writes the headers, unless the publisher has its own.
    pub(crate) fn sign(&self, headers: &Headers, text: &mut Text) {
        if headers.value(TRACEPARENT).is_some() {
            return;
        }
        let Self { id, parent, flags, state } = self;
        text.push(TRACEPARENT, &format!("00-{id}-{parent}-{flags}"));
        if let (Some(state), None) = (state, headers.value(TRACESTATE)) {
            text.push(TRACESTATE, state);
        }
    }
}

/// The text if it is this many lower-case hex digits. An id is not all zeros.
fn hex(text: &str, digits: usize) -> Option<String> {
    let fits = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (fits && (digits == 2 || text.bytes().any(|b| b != b'0'))).then(|| text.to_owned())
}
