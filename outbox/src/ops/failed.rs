//! What operators are told when a statement fails.

use crate::error::{StoreError, Told, has_code};

/// For `map_err` on a driver's result. If a table or column is missing, the tables were not
/// migrated, and the error says what to do.
pub(crate) fn failed(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        // PostgreSQL's undefined table and column; SQLite has no codes of its own.
        let missing = has_code(&error, &["42P01", "42703"])
            || error.as_database_error().is_some_and(|refused| {
                ["no such table", "no such column", "no such index"]
                    .iter()
                    .any(|text| refused.message().starts_with(text))
            });
        if missing {
            let why = format!(
                "{}; make or upgrade the tables with `outbox migrate`; `outbox check` tells \
                 what is still missing then",
                Told(&error)
            );
            return StoreError::new(action, why, false);
        }
        StoreError::of(action)(error)
    }
}
