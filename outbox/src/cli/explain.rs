//! What an error means to whoever sits at the terminal.

use std::error::Error as StdError;

use crate::app::App;
use crate::error::BoxError;

/// The error, with what to do where that is known.
pub(super) async fn explain(app: &App, error: &BoxError) -> String {
    let told = error.to_string();
    match driver(&**error) {
        Some(sqlx::Error::Database(refused)) => match refused.code().as_deref() {
            // PostgreSQL: undefined table, insufficient privilege.
            Some("42P01") => format!("{told}; `outbox migrate` makes the tables"),
            Some("42501") => {
                format!("{told}; `outbox migrate --print-grants` prints what each role needs")
            }
            _ if refused.message().starts_with("no such table") => {
                format!("{told}; `outbox migrate` makes the tables")
            }
            // SQLite: cannot open.
            Some("14") => reason(app).await.unwrap_or(told),
            _ => told,
        },
        // A pool says only that it waited.
        Some(_) => reason(app).await.unwrap_or(told),
        None => told,
    }
}

/// Why the database cannot be reached, if it cannot.
async fn reason(app: &App) -> Option<String> {
    app.operator().ok()?.reach().await.err().map(|error| error.to_string())
}

/// What the driver said, however deep it lies.
fn driver<'a>(mut error: &'a (dyn StdError + 'static)) -> Option<&'a sqlx::Error> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        error = error.source()?;
    }
}
