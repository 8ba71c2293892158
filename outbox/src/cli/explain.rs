//! What an error means to whoever sits at the terminal.

use std::error::Error as StdError;

use crate::app::App;
use crate::dlq::{CUT, DROP};
use crate::error::{BoxError, Error};
use crate::ops::Desk;

/// The error, with what to do where that is known.
pub(super) async fn explain(app: &App, error: &BoxError) -> String {
    let told = error.to_string();
    match driver(&**error) {
        Some(sqlx::Error::Database(refused)) => match refused.code().as_deref() {
            // Lock not available.
            Some("55P03") => match locks(app, changes_table(error)).await {
                Some(locks) => format!("{told}; {locks}"),
                None => format!(
                    "{told}; whoever held the lock has not locked a whole table, or is done by now: \
                     try again"
                ),
            },
            // SQLite: cannot open.
            Some("14") => reason(app).await.unwrap_or(told),
            _ => match app.operator() {
                Ok(operator) => format!("{told} (in {})", operator.place()),
                Err(_) => told,
            },
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

/// Whether the command changes the dead-letter table itself: then even those who read it are in the
/// way.
fn changes_table(error: &BoxError) -> bool {
    let failed = error.downcast_ref();
    matches!(failed, Some(Error::Store(failed)) if [CUT, DROP].contains(&failed.action))
}

/// Who keeps tables locked, if anybody does.
async fn locks(app: &App, readers_too: bool) -> Option<String> {
    match app.operator().ok()?.desk {
        #[cfg(feature = "postgres")]
        Desk::Postgres(desk) => {
            let mut tables = desk.locked_tables().await.ok()?;
            if tables.is_empty() && readers_too {
                tables.push(desk.letters_in_use().await.ok()?);
                tables.retain(|(_, by)| !by.is_empty());
            }
            let told = tables.iter().map(|(table, by)| {
                let told = crate::ops::locked(table, by);
                format!("{} ({})", told.what, told.next)
            });
            let told: Vec<_> = told.collect();
            (!told.is_empty()).then(|| told.join("; "))
        }
        #[cfg(feature = "sqlite")]
        Desk::Sqlite(_) => {
            let _ = readers_too;
            None
        }
    }
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
