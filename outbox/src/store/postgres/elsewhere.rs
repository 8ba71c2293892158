//! Whether the user's pool and the engine mean the same table. The engine connects with the options
//! of that pool, but not with its `after_connect`, which sqlx shows to nobody. If that sets a
//! `search_path`, a table without a schema may be another one.

use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use super::{CONNECT_LIMIT, PgDesk};

impl PgDesk {
    /// What speaks against a start. A connection of the pool is asked, if there are any, as after a
    /// migration or an earlier use. One may be on its way back to the pool.
    pub(crate) async fn lies_elsewhere(&self, engines: &mut PgConnection) -> Option<String> {
        if self.names.schema().is_some() || self.pool().size() == 0 {
            return None;
        }
        let mut users = timeout(CONNECT_LIMIT, self.pool().acquire()).await.ok()?.ok()?;
        let table = self.names.qualified(self.names.table());
        let both = async {
            let of_pool = schema_of(&mut users, &table).await?;
            Ok::<_, sqlx::Error>((of_pool, schema_of(engines, &table).await?))
        };
        // A server that cannot be asked now is reported elsewhere.
        let (of_pool, of_engine) = timeout(CONNECT_LIMIT, both).await.ok()?.ok()?;
        let place = |schema: &Option<String>| match schema {
            Some(schema) => format!("lies in the schema {schema}"),
            None => "is not there".to_owned(),
        };
        (of_pool != of_engine).then(|| {
            format!(
                "the table {table} {} for your pool, and {} for the engine, whose connections have \
                 the pool's options but not its `after_connect`: name the schema \
                 (`TableNames::in_schema`, or for `App::from_env` `OUTBOX_SCHEMA`), or set `search_path` in the URL",
                place(&of_pool),
                place(&of_engine)
            )
        })
    }
}

async fn schema_of(
    connection: &mut PgConnection,
    table: &str,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)",
    )
    .bind(table)
    .persistent(false)
    .fetch_optional(connection)
    .await
}
