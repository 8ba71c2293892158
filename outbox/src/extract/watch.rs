//! The lease of a delivery, as the lease task and the handler see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::unpoisoned::Locked as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The deadline of a lease, and its loss. Tokens are made on demand: most handlers end before
/// anybody asks for one.
pub(crate) struct Watch {
    /// Moved on by the lease task.
    deadline: Mutex<Instant>,
    lost: AtomicBool,
    tokens: OnceLock<Tokens>,
}

struct Tokens {
    /// For the engine alone. Whoever has the other token may cancel it.
    lost: CancellationToken,
    cancelled: CancellationToken,
}

impl Watch {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self {
            deadline: Mutex::new(deadline),
            lost: AtomicBool::new(false),
            tokens: OnceLock::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        *self.deadline.locked()
    }

    pub(crate) fn extend(&self, deadline: Instant) {
        *self.deadline.locked() = deadline;
    }

    /// Another claim owns the row, or must be assumed to.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        if let Some(tokens) = self.tokens.get() {
            tokens.lost.cancel();
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Ready when the lease is lost.
    pub(crate) async fn lost(&self) {
        self.tokens().lost.cancelled().await;
    }

    /// The token that is cancelled when the lease is lost, or the run is over before its end.
    pub(crate) fn cancelled(&self) -> &CancellationToken {
        &self.tokens().cancelled
    }

    fn tokens(&self) -> &Tokens {
        let tokens = self.tokens.get_or_init(|| {
            let lost = CancellationToken::new();
            Tokens { cancelled: lost.child_token(), lost }
        });
        // The lease may have been lost before the tokens were there.
        if self.is_lost() {
            tokens.lost.cancel();
        }
        tokens
    }
}
