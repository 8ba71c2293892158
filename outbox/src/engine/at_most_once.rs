//! `AckFirst`.

use std::sync::Arc;

use tracing::warn;

use super::guard::guarded;
use super::handle::{Over, Running};
use super::inbox::Job;
use super::invoke::Run;
use super::settle::{Settlement, settle};
use super::{Reader, Shared};
use crate::extract::Context;
use crate::store::Store;
use crate::subscriber::HandlerError;
use crate::telemetry::TARGET;

/// The rows are gone before the handler starts, so its result can
/// change nothing.
pub(super) async fn run<S: Store>(shared: &Shared<S>, reader: &Arc<Reader>, runs: Vec<Run<'_>>) {
    let mut begun = Vec::with_capacity(runs.len());
    for run in runs {
        let Over { settling, job, context } = Over::from(run);
        let ack = settling.ruled(Settlement::Ack { messages: Vec::new() });
        if settle(&shared.store, vec![ack]).await == 1 {
            begun.push((job, context));
        }
    }
    if begun.is_empty() {
        return;
    }
    let _running = Running::count(shared, begun.len());
    let contexts = || begun.iter().map(|(_, context)| context.clone()).collect();
    let limit = reader.subscriber.options.timeout;
    let results = tokio::select! {
        results = guarded(|| reader.subscriber.call(contexts()), limit) => results,
        () = shared.cut_off.cancelled() => {
            for (_, context) in &begun {
                context.cancelled().cancel();
            }
            return;
        }
    };
    let failed = |(job, _): &(Job, Context), error: &HandlerError| {
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), row_id = job.claimed.row.id,
            exception_type = error.kind(),
            "a handler failed on a message that was acked first; it is gone"
        );
    };
    for (at, one) in begun.iter().enumerate() {
        match &results {
            Ok(results) => {
                if let Some(Err(error)) = results.get(at) {
                    failed(one, error);
                }
            }
            Err(error) => failed(one, error),
        }
    }
}
