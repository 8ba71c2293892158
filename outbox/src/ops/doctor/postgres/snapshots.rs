//! Whether somebody keeps dead rows from being cleared away.

use std::time::Duration;

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

/// A slot that somebody reads counts as old when it is more transactions behind than this.
const OLD_SLOT: i64 = 1_000_000;

/// What holds back the clearing away of dead rows, the oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    pub(crate) holders: Vec<Holder>,
    /// This role sees what others hold.
    pub(crate) all_seen: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) kind: Kind,
    /// Who, in words.
    pub(crate) who: String,
    /// Since when; of a replication slot or a standby it is not known.
    pub(crate) age: Option<Duration>,
    /// Transactions since.
    pub(crate) transactions: i64,
    /// Of a session its pid, otherwise the name.
    pub(crate) name: String,
    /// A slot that somebody reads.
    pub(crate) active: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Session,
    Slot,
    Standby,
    Prepared,
}

pub(super) async fn check(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    let snapshots = desk.snapshots().await?;
    Ok(judge(&snapshots, limits.snapshot_age, found))
}

fn judge(snapshots: &Snapshots, most: Duration, found: &mut Found) -> String {
    for Holder { kind, who, age, transactions, name, active } in &snapshots.holders {
        let is_old = match age {
            Some(age) => *age > most,
            None => !active || *transactions > OLD_SLOT,
        };
        if !is_old {
            continue;
        }
        let since = age.map_or_else(
            || format!("{transactions} transactions"),
            |age| humantime::format_duration(Duration::from_secs(age.as_secs())).to_string(),
        );
        let literal = name.replace('\'', "''");
        let mend = match kind {
            Kind::Session => format!("end it: `SELECT pg_terminate_backend({name})`"),
            Kind::Slot => format!(
                "if nobody needs it any more: `SELECT pg_drop_replication_slot('{literal}')`; \
                 otherwise start what reads it"
            ),
            Kind::Standby => "end the long query on that standby, or set \
                 `hot_standby_feedback` to off there"
                .into(),
            Kind::Prepared => format!(
                "ask whoever prepared it, then `COMMIT PREPARED '{literal}'` or \
                 `ROLLBACK PREPARED '{literal}'`"
            ),
        };
        found.warning(
            format!("{who} has kept dead rows from being cleared away for {since}"),
            "the table and its indexes grow with every row that is handled, and claims get slower",
            mend,
        );
    }
    if !snapshots.all_seen {
        found.note(
            "this role does not see the sessions of others",
            "an old snapshot of theirs is not found",
            "`GRANT pg_read_all_stats TO` this role",
        );
    }
    let aged = snapshots.holders.iter().filter_map(|holder| Some((holder.age?, &holder.who)));
    match aged.max_by_key(|(age, _)| *age) {
        Some((age, who)) => format!("the oldest snapshot is {} s old, of {who}", age.as_secs()),
        None => "nobody holds a snapshot".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_nobody_reads_is_told_and_one_that_is_read_is_not() {
        let told = |kind, active, transactions| {
            let name = "standby".to_owned();
            let who = "the replication slot standby".into();
            let holder = Holder { kind, who, age: None, transactions, name, active };
            let mut found = Found::by("snapshots");
            let snapshots = Snapshots { holders: vec![holder], all_seen: true };
            judge(&snapshots, Duration::from_secs(300), &mut found);
            found.severities().len()
        };
        assert_eq!(told(Kind::Slot, true, 10), 0);
        assert_eq!(told(Kind::Slot, false, 10), 1);
        assert_eq!(told(Kind::Slot, true, 2_000_000), 1);
        assert_eq!(told(Kind::Standby, true, 2_000_000), 1);
    }

    #[test]
    fn who_holds_the_oldest_snapshot_is_said_also_while_it_is_young() {
        let of = |who: &str, seconds| Holder {
            kind: Kind::Session,
            who: who.into(),
            age: Some(Duration::from_secs(seconds)),
            transactions: 1,
            name: "7".into(),
            active: true,
        };
        let holders = vec![of("the session 7", 3), of("the session 8", 9), of("the session 9", 5)];
        let mut found = Found::by("snapshots");
        let snapshots = Snapshots { holders, all_seen: true };
        let said = judge(&snapshots, Duration::from_secs(300), &mut found);
        assert_eq!(said, "the oldest snapshot is 9 s old, of the session 8");
        assert!(found.severities().is_empty());
    }
}
