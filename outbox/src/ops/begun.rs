//! Transactions on the user's pool.

use std::future::Future;

use crate::error::StoreError;

/// Begins a transaction in a task of its own, which nobody drops half-way.
///
/// A call to sqlx that is dropped while it begins a transaction gives the connection back inside
/// it, and the user's next statement would run in it, too. A transaction that nobody waits for any
/// more is rolled back.
pub(crate) async fn begun<T: Send + 'static>(
    action: &'static str,
    begin: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::spawn(begin).await {
        Ok(answer) => answer.map_err(StoreError::of(action)),
        Err(ended) => Err(StoreError::new(action, ended, false)),
    }
}
