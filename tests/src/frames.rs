//! The messages of PostgreSQL's protocol, as they come over a connection.

/// One message of either side.
pub struct Frame {
    /// `None`: the client's first, which has no type.
    pub kind: Option<u8>,
    /// All of it, as it came.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// What its body holds, between zeros.
    pub fn texts(&self) -> Vec<&[u8]> {
        let head = usize::from(self.kind.is_some()) + 4;
        self.bytes[head..].split(|byte| *byte == 0).collect()
    }
}

/// Cuts what is read into messages.
pub struct Frames {
    rest: Vec<u8>,
    typed: bool,
}

impl Frames {
    pub fn of_client() -> Self {
        Self { rest: Vec::new(), typed: false }
    }

    pub fn of_server() -> Self {
        Self { rest: Vec::new(), typed: true }
    }

    /// The messages that are whole by now.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.rest.extend_from_slice(bytes);
        let (mut at, mut whole) = (0, Vec::new());
        loop {
            let head = usize::from(self.typed);
            let Some(length) = self.rest[at..].get(head..head + 4) else { break };
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            let Some(bytes) = self.rest[at..].get(..head + length) else { break };
            whole.push(Frame { kind: self.typed.then(|| bytes[0]), bytes: bytes.to_vec() });
            at += head + length;
            self.typed = true;
        }
        self.rest.drain(..at);
        whole
    }
}
