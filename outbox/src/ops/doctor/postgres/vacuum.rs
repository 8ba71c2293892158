//! Whether dead rows are cleared away.

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

/// Who clears the table, and what there is to clear.
#[derive(Debug, Clone)]
pub(crate) struct Vacuum {
    /// The server's settings `autovacuum` and `track_counts`.
    pub(crate) automatic: bool,
    pub(crate) counted: bool,
    /// This role may vacuum the table.
    pub(crate) may: bool,
    pub(crate) owner: String,
    pub(crate) live: i64,
    pub(crate) dead: i64,
}

pub(super) async fn check(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    let Some(vacuum) = desk.vacuum().await? else {
        return Ok("the table does not exist".into());
    };
    Ok(judge(&vacuum, limits.dead_rows, found))
}

fn judge(vacuum: &Vacuum, most: u64, found: &mut Found) -> String {
    let Vacuum { automatic, counted, may, owner, live, dead } = vacuum;
    if !automatic || !counted {
        let setting = if *automatic { "track_counts" } else { "autovacuum" };
        found.warning(
            format!("`{setting}` of the server is off: no table is vacuumed by itself"),
            "dead rows are cleared away only while the engine is busy, and dead letters never; in \
             the end the server stops accepting writes",
            format!("`ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf()`"),
        );
    }
    if !may {
        found.note(
            format!("this role cannot vacuum the table, which `{owner}` owns"),
            "the engine leaves that to autovacuum, which looks once a minute: a busy table grows \
             by what is handled in between",
            "set a short `autovacuum_naptime`, or `GRANT` the owner's role to the consumer's",
        );
    }
    if u64::try_from(*dead).is_ok_and(|dead| dead > most) {
        found.warning(
            format!("the table has {dead} dead rows beside {live} live ones"),
            "claims read past them",
            "see the check `snapshots` for who holds them back; if nobody does, `VACUUM` the table",
        );
    }
    format!("{dead} dead rows beside {live} live ones")
}
