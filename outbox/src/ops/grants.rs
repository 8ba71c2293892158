//! Roles of a PostgreSQL server. Each gets what it needs and no more.

use super::Operator;
use crate::error::{Error, Result};
#[cfg(feature = "postgres")]
use crate::schema::Database;

/// The names of the roles, and what producers may do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Roles {
    /// The role of programs that publish; `outbox_producer` by default.
    pub producer: String,
    /// The role of programs that handle messages; `outbox_consumer` by default.
    pub consumer: String,
    /// The role of operators; `outbox_operator` by default.
    pub operator: String,
    /// Whether producers may also move and cancel timers, and look at what waits. They can then
    /// change or delete any message that waits. `false` by default.
    pub timers: bool,
}

impl Default for Roles {
    fn default() -> Self {
        Self {
            producer: "outbox_producer".into(),
            consumer: "outbox_consumer".into(),
            operator: "outbox_operator".into(),
            timers: false,
        }
    }
}

impl Roles {
    /// What is wrong with the names. PostgreSQL cuts longer ones, so two of them could become one.
    pub(crate) fn problems(&self) -> Vec<String> {
        let roles = [
            ("producer", &self.producer),
            ("consumer", &self.consumer),
            ("operator", &self.operator),
        ];
        let wrong = |name: &str| name.is_empty() || name.len() > 63 || name.contains(['\0', '$']);
        let refused = roles.into_iter().filter(|(_, name)| wrong(name));
        refused
            .map(|(what, name)| {
                format!("the name {name:?} of the {what} role is empty, has more than 63 bytes, or holds NUL or `$`")
            })
            .collect()
    }
}

impl Operator {
    /// The SQL that makes the roles and grants each what it needs, for the owner of the tables. It
    /// can be repeated, and revokes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "postgres")] {
    /// use outbox::ops::{Operator, Roles};
    ///
    /// let pool = sqlx::PgPool::connect_lazy("postgres://shop@localhost/shop").unwrap();
    /// let sql = Operator::postgres(pool, outbox::TableNames::default())
    ///     .grants(&Roles::default())?;
    /// assert!(sql.contains(r#"GRANT SELECT ON "outbox_paused" TO "outbox_consumer""#));
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - On SQLite, which has no roles: whoever may open the file may do everything.
    /// - When a name cannot be the name of a role.
    pub fn grants(&self, roles: &Roles) -> Result<String> {
        let wrong = roles.problems();
        if !wrong.is_empty() {
            return Err(Error::Config(wrong));
        }
        match self.database() {
            #[cfg(feature = "postgres")]
            Database::Postgres => Ok(crate::store::postgres::grants_sql(&self.names, roles)),
            #[allow(unreachable_patterns)]
            _ => Err(Error::Config(vec![
                "SQLite has no roles: whoever may open the file may do everything; give the \
                 file to the user that runs the program, and `chmod 600` it"
                    .into(),
            ])),
        }
    }
}
