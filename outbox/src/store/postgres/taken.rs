//! Indexes of other tables that have the names of ours. A table that is renamed keeps the names of
//! its indexes. The migrations would make no index whose name is taken, and would drop the other
//! table's to make their own.

use sqlx::postgres::PgConnection;

use crate::store::names::TableNames;

/// An index whose name is one of ours, though its table is not.
pub(super) struct Taken {
    /// The name, as our table would have it.
    pub(super) name: String,
    /// Qualified and quoted, as the table.
    pub(super) index: String,
    pub(super) table: String,
    /// Gives the index the name that it would have had from its table, or drops it where that has
    /// an index of this name beside it.
    pub(super) mend: String,
}

/// An index lies in the schema of its table; a table that is not there yet will be in the first
/// schema of the path. An index that is dropped, to be made anew, may be found anywhere in the path.
const TAKEN: &str = "SELECT c.relname::text, c.oid::regclass::text, o.oid::regclass::text, \
        quote_ident(o.relname || ours.suffix), EXISTS (SELECT FROM pg_class AS own \
            JOIN pg_index AS y ON y.indexrelid = own.oid AND y.indrelid = o.oid \
            WHERE own.relname = o.relname || ours.suffix) \
    FROM unnest($1::text[], $2::text[], $3::text[]) AS ours (plain, suffix, qualified) \
    JOIN pg_class AS c ON c.relname = ours.plain || ours.suffix \
    JOIN pg_index AS x ON x.indexrelid = c.oid \
    JOIN pg_class AS o ON o.oid = x.indrelid \
    WHERE o.oid IS DISTINCT FROM to_regclass(ours.qualified) \
        AND (c.oid = to_regclass($5) OR c.relnamespace = coalesce( \
            (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(ours.qualified)), \
            to_regnamespace(quote_ident(coalesce($4, current_schema()::text))))) \
    ORDER BY c.relname";

pub(super) async fn taken(
    connection: &mut PgConnection,
    names: &TableNames,
) -> Result<Vec<Taken>, sqlx::Error> {
    let (tables, ends): (Vec<_>, Vec<_>) = names.indexes().into_iter().unzip();
    let qualified: Vec<_> = tables.iter().map(|table| names.qualified(table)).collect();
    let made_anew = names.qualified(&[names.table(), "_due_idx"].concat());
    let rows: Vec<(String, String, String, String, bool)> = sqlx::query_as(TAKEN)
        .persistent(false)
        .bind(tables)
        .bind(ends)
        .bind(qualified)
        .bind(names.schema())
        .bind(made_anew)
        .fetch_all(connection)
        .await?;
    let each = |(name, index, table, own, is_beside)| {
        let mend = if is_beside {
            format!("DROP INDEX {index}")
        } else {
            format!("ALTER INDEX {index} RENAME TO {own}")
        };
        Taken { name, index, table, mend }
    };
    Ok(rows.into_iter().map(each).collect())
}
