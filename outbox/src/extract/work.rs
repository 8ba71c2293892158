//! What became of a message inside layers. The layers and the handler may answer differently.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::subscriber::HandlerResult;

/// How far the handler has come with a message that came through layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The handler never got it, or there are no layers.
    Outside,
    /// The handler has begun, and has not ended or was dropped.
    Begun,
    Acked,
    /// The handler has ended without an ack.
    Failed,
    /// A layer answered otherwise than the handler, or gave it up meanwhile.
    Overruled,
}

/// What the handler and the layers have made of one delivery.
pub(crate) struct Work {
    stage: AtomicU8,
    answer: OnceLock<Box<HandlerResult>>,
}

impl Work {
    pub(crate) const fn new() -> Self {
        Self { stage: AtomicU8::new(Stage::Outside as u8), answer: OnceLock::new() }
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::SeqCst);
    }

    pub(crate) fn stage(&self) -> Stage {
        let stage = self.stage.load(Ordering::SeqCst);
        [Stage::Begun, Stage::Acked, Stage::Failed, Stage::Overruled]
            .into_iter()
            .find(|known| *known as u8 == stage)
            .unwrap_or(Stage::Outside)
    }

    /// Its layers will not end any more.
    pub(crate) fn give_up(&self) {
        if self.stage() == Stage::Acked {
            self.enter(Stage::Overruled);
        }
    }

    /// Keeps the answer of its layers in a batch, whatever becomes of the other messages.
    pub(crate) fn answered(&self, result: HandlerResult) {
        let _ = self.answer.set(Box::new(result));
    }

    pub(crate) fn answer(&self) -> Option<&HandlerResult> {
        self.answer.get().map(|answer| &**answer)
    }
}
