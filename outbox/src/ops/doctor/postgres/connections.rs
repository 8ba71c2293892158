//! Whether the server has room for the connections of every process.

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

/// The connections of one engine: four that work, one that listens.
const ENGINE: i64 = 5;

/// What the server allows and has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connections {
    /// For ordinary roles, on the whole server.
    pub(crate) allowed: i64,
    pub(crate) used: i64,
    /// For this role and this database, if they are limited.
    pub(crate) limit: Option<i64>,
    /// What the pool of this program may open.
    pub(crate) pool: i64,
}

pub(super) async fn check(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    let connections = desk.connections().await?;
    Ok(judge(connections, i64::from(limits.processes), found))
}

fn judge(connections: Connections, processes: i64, found: &mut Found) -> String {
    let Connections { allowed, used, limit, pool } = connections;
    let needed = processes.saturating_mul(ENGINE + pool);
    let most = limit.map_or(allowed, |limit| limit.min(allowed));
    let wants = format!(
        "{processes} process(es) open up to {needed} connections ({ENGINE} of the engine and {pool} \
         of the pool each)"
    );
    let mend = "make the pool of the program smaller (`PgPoolOptions::max_connections`), or raise \
                `max_connections` of the server or the CONNECTION LIMIT of the role";
    if needed > most {
        let why = "connecting fails from some point on, and handlers with it";
        found.error(format!("{wants}, and the server lets this role have {most}"), why, mend);
    } else if used + needed > allowed {
        found.warning(
            format!("{wants}, and of {allowed} connections {used} are taken now"),
            "if those that are taken are not this program's own, it will not get all that it wants",
            mend,
        );
    }
    format!("{used} of {allowed} are taken; {wants}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::doctor::Severity;

    #[test]
    fn what_never_fits_is_an_error_and_what_fits_no_more_a_warning() {
        let told = |used, limit, processes| {
            let mut found = Found::by("connections");
            judge(Connections { allowed: 97, used, limit, pool: 10 }, processes, &mut found);
            found.severities()
        };
        assert_eq!(told(10, None, 1), []);
        assert_eq!(told(90, None, 1), [Severity::Warning]);
        assert_eq!(told(0, None, 7), [Severity::Error]);
        assert_eq!(told(0, Some(14), 1), [Severity::Error]);
    }
}
