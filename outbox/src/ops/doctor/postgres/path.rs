//! Whether strangers may create functions where statements look for them.

use crate::error::Result;
use crate::ops::doctor::names::count;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

pub(super) async fn check(desk: &PgDesk, found: &mut Found) -> Result<String> {
    let open = desk.open_schemas().await?;
    for schema in &open {
        found.warning(
            format!("every role may create functions and operators in the schema {schema}"),
            "PostgreSQL prefers one whose arguments fit better than those of its own: the next \
             statement of this role, or the owner's `migrate`, runs it with the rights of that role",
            format!("REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC"),
        );
    }
    Ok(match open.len() as u64 {
        0 => "nobody else may create functions where statements look for them".into(),
        open => format!("{} open to everybody", count(open, "schema")),
    })
}
