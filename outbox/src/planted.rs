//! Deliberate bugs. The fault campaign has to catch each of them: a harness that finds nothing may
//! look nowhere. `scripts/planted` builds them in, and `OUTBOX_PLANTED` names the one that is on.
//! No other build contains any.

#[cfg(all(outbox_planted, not(debug_assertions)))]
compile_error!("`outbox_planted` plants bugs: it is for builds with debug assertions alone");

#[cfg(not(outbox_planted))]
pub(crate) const fn planted(_: &str) -> bool {
    false
}

#[cfg(outbox_planted)]
pub(crate) use there::{edited, planted};

// Compiled for tests too: they check that each bug still has its place.
#[cfg(any(outbox_planted, test))]
#[cfg_attr(not(outbox_planted), allow(dead_code, reason = "nothing is planted"))]
mod there {
    use std::sync::LazyLock;

    static BUG: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("OUTBOX_PLANTED").ok());

    pub(crate) fn planted(bug: &str) -> bool {
        BUG.as_deref() == Some(bug)
    }

    /// A piece of a statement, and what the bug puts in its place.
    type Edit = (&'static str, &'static str);

    /// The bugs in PostgreSQL's statements: a bug, the beginning of the file of its statement, and
    /// its edits.
    const STATEMENTS: &[(&str, &str, &[Edit])] = &[
        ("retry-without-token", "-- Puts failed rows off", &[TOKEN]),
        ("release-without-token", "-- Gives leases back", &[TOKEN]),
        (
            "extend-without-token",
            "-- Starts leases anew",
            &[TOKEN, (" AND o.acquired_token IS NOT DISTINCT FROM mine.token", "")],
        ),
        (
            "ack-without-token",
            "-- Deletes handled rows whose lease still holds, and returns which",
            &[TOKEN],
        ),
        ("drain-keeps-leases", "-- Gives leases back", &[(TOKEN.0, "AND false")]),
        ("letter-in-two-steps", "-- Moves rows that failed", &[COPY, RETURNS_NOTHING]),
        ("letter-without-delete", "-- Moves rows that failed", &[COPY, RETURNS_NOTHING]),
        (
            "delete-without-letter",
            "-- Moves rows that failed",
            &[
                ("    FROM deleted\n    RET", "    FROM deleted WHERE false\n    RET"),
                ("CASE (SELECT count(*) FROM kept) WHEN", "CASE count(*) WHEN"),
            ],
        ),
        (
            "letter-without-headers",
            "-- Moves rows that failed",
            &[("SELECT id, queue, payload, headers,", "SELECT id, queue, payload, NULL::jsonb,")],
        ),
        (
            "claim-over-lease",
            CLAIM,
            &[("- claims.ttl)", "- claims.ttl / 2)"), ("- due.ttl)", "- due.ttl / 2)")],
        ),
        (
            "claim-over-lease",
            CLAIMS_OF_ONE,
            &[("() - $2 * interval '1 m", "() - $2 * interval '0.5 m")],
        ),
        (
            "stale-lease",
            CLAIM,
            &[(
                "now FROM clock),\n        deliveries",
                "now FROM clock) - interval '1 s',\n        deliveries",
            )],
        ),
        (
            "stale-lease",
            CLAIMS_OF_ONE,
            &[(
                "acquired_at = statement_timestamp(),",
                "acquired_at = statement_timestamp() - interval '1 s',",
            )],
        ),
        (
            "early-claim",
            CLAIM,
            &[(
                "o.next_attempt_at <= (SELECT now FROM clock)\n              AND (o.next",
                "o.next_attempt_at <= (SELECT now FROM clock) + interval '1 s'\n              AND (o.next",
            )],
        ),
        (
            "early-claim",
            CLAIMS_OF_ONE,
            &[(
                "o.next_attempt_at <= statement_timestamp()",
                "o.next_attempt_at <= statement_timestamp() + interval '1 s'",
            )],
        ),
        ("uncounted-delivery", CLAIM, &[UNCOUNTED]),
        ("uncounted-delivery", CLAIMS_OF_ONE, &[UNCOUNTED]),
        ("early-retry", "-- Puts failed rows off", &[("* interval '1 m", "* interval '0.5 m")]),
    ];

    /// The same for SQLite. No edit of a write contains a parameter: in a trigger it has another
    /// name.
    const ON_SQLITE: &[(&str, &str, &[Edit])] = &[
        ("claim-over-lease", PLACES, &[("AS INTEGER) - ?2)", "AS INTEGER) - ?2 / 2)")]),
        (
            "early-claim",
            PLACES,
            &[(
                "next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
                "next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 1000000",
            )],
        ),
        ("stale-lease", PLACES, &[("AS INTEGER)\nFROM", "AS INTEGER) - 1500000\nFROM")]),
        ("stale-lease", "-- Starts a lease anew", &[("AS INTEGER),", "AS INTEGER) - 1500000,")]),
        (
            "uncounted-delivery",
            "-- Leases one row that claim_places found",
            &[("min(max(deliveries_count, 0), 9223372036854775806) + 1", "deliveries_count")],
        ),
        (
            "early-retry",
            "-- Puts a failed row off",
            &[("next_attempt_at = CAST", "next_attempt_at = -50000 + CAST")],
        ),
        (
            "letter-without-headers",
            "-- Copies a row that failed for good",
            &[("SELECT id, queue, payload, headers,", "SELECT id, queue, payload, NULL,")],
        ),
    ];

    const PLACES: &str = "-- Finds due rows of one queue, in order";
    const CLAIM: &str = "-- Leases due rows, free ones";
    /// The claims of one queue: the one that follows a wake, and the one that drains a backlog.
    const CLAIMS_OF_ONE: &str = "-- Leases due rows as claim.sql";
    const UNCOUNTED: Edit =
        ("least(greatest(o.deliveries_count, 0), 9223372036854775806) + 1", "o.deliveries_count");
    const TOKEN: Edit = (
        "AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]",
        "",
    );
    const COPY: Edit = (
        "DELETE FROM \"outbox\" AS o",
        "SELECT o.id, o.queue, o.payload, o.headers, o.deliveries_count, o.created_at, o.timer_id,
        width_bucket(o.id, $3::bigint[]) AS run FROM \"outbox\" AS o",
    );
    const RETURNS_NOTHING: Edit = (
        "    RETURNING o.id, o.queue, o.payload, o.headers, o.deliveries_count, o.created_at, o.timer_id,
        width_bucket(o.id, $3::bigint[]) AS run\n",
        "",
    );

    /// The text of a statement with the bug that is on, if the bug is in that statement.
    pub(crate) fn edited(text: &str) -> String {
        let mut text = text.to_owned();
        let (own, which) = (|bug| planted(bug), text.clone());
        let all = STATEMENTS.iter().chain(ON_SQLITE);
        for (_, _, edits) in all.filter(|it| own(it.0) && which.starts_with(it.1)) {
            for (before, after) in *edits {
                assert!(text.contains(before), "a bug has no place any more: {before}");
                text = text.replace(before, after);
            }
        }
        text
    }

    #[cfg(test)]
    #[test]
    fn every_bug_has_its_place_in_a_statement() {
        for (store, statements) in [("postgres", STATEMENTS), ("sqlite", ON_SQLITE)] {
            let folder = format!("{}/src/store/{store}/sql", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let read = |path| std::fs::read_to_string(path).ok();
            let texts: Vec<_> = files.filter_map(read).collect();
            for (bug, start, edits) in statements {
                let of_it = || texts.iter().filter(|text| text.starts_with(start));
                assert_ne!(of_it().count(), 0, "{bug}: nothing begins with {start:?}");
                for (before, _) in *edits {
                    assert!(of_it().all(|text| text.contains(before)), "{bug}: {before}");
                }
            }
        }
    }
}
