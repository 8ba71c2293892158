//! The examples do what they show.

mod quickstart;
mod run;

use run::{Example, assert_lines};

#[test]
fn transaction_shows_what_commits_together() {
    assert_lines(
        &Example::new("transaction", "").story(),
        &[
            "rolled back: order 13 cannot be paid",
            "the batch inserted 2 rows",
            "refused: the queue name is empty",
            "pending: {\"id\":1}",
            "pending: {\"id\":2}",
            "pending: {\"id\":4}",
            "pending: {\"id\":5}",
            "handled: order 1 from a plain publish",
            "handled: order 2 from a plain publish",
            "handled: order 4 from a batch",
            "handled: order 5 from a batch",
            "left: 0",
        ],
    );
}

#[test]
fn retries_shows_each_strategy() {
    let story = Example::new("retries", "").story();
    // Order is certain within a queue only.
    assert_lines(
        &story,
        &[
            "mail to ann: attempt 1 fails",
            "mail to ann: attempt 2 fails",
            "mail to ann: attempt 3 succeeds",
            "left: 0",
        ],
    );
    assert_lines(
        &story,
        &[
            "sms to bob: attempt 1 fails",
            "sms to bob: attempt 2 fails",
            "sms to bob: attempt 3 fails",
        ],
    );
    assert_lines(&story, &["report May: attempt 1", "report May: attempt 2"]);
    assert_lines(
        &story,
        &["delivery to Elm: the shop is closed", "delivery to Elm: done, 0 attempts spent"],
    );
    assert_eq!(story.lines().filter(|line| line.starts_with("sms")).count(), 3);
    assert_eq!(story.lines().filter(|line| line.starts_with("report")).count(), 2);
}

#[test]
fn dead_letter_shows_each_reason_and_replays() {
    assert_lines(
        &Example::new("dead_letter", "").story(),
        &[
            "imports: max_deliveries (handler not run again)",
            "invoices: retry_terminal (String)",
            "refunds: rejected (the amount is negative)",
            "refunds: retry_terminal (decode)",
            "4 letters, 4 problems",
            "The address is known now; the dead invoices are put back.",
            "replayed: 1",
            "invoice 7 is sent",
            "left: 0",
        ],
    );
}

#[test]
fn timers_shows_delays_names_and_cancelling() {
    let story = Example::new("timers", "").story();
    assert_lines(
        &story,
        &[
            "attempt 1: bob will be reminded",
            "attempt 2: bob has a reminder already",
            "the draft waits",
            "the draft waits longer",
            "eve's reminder is taken back: true",
            "reminded: ann (no name)",
            "left: 0",
        ],
    );
    // Order is certain within a queue only.
    assert_lines(&story, &["eve's reminder is taken back: true", "saved: dear ann", "left: 0"]);
    assert_eq!(story.matches("reminded: bob (bob-trial)").count(), 1);
    assert_eq!(story.matches("saved:").count(), 1);
    assert!(!story.contains("reminded: eve"));
}

#[test]
fn testing_shows_retries_without_waiting() {
    assert_lines(
        &Example::new("testing", "").story(),
        &[
            "attempt 1 after 0ns: Retried(60s)",
            "attempt 2 after 60s: Retried(120s)",
            "attempt 3 after 180s: Terminal(RetryTerminal)",
            "dead letter: retry_terminal: \"order 7: no route\"",
        ],
    );
}

#[test]
fn transactional_shows_what_commits_with_the_ack() {
    let story = Example::new("transactional", "").story();
    assert_lines(
        &story,
        &[
            "attempt 1: bob would have 30",
            "ann has 70 left",
            "attempt 1: bob would have 530",
            "ann cannot pay 500",
            "attempt 2: bob would have 530",
            "ann cannot pay 500",
            "balance of ann: 70",
            "balance of bob: 30",
            r#"not booked, retry_terminal: {"from":"ann","to":"bob","amount":500}"#,
        ],
    );
    assert_lines(&story, &["receipt: ann paid 30 to bob"]);
    assert_eq!(story.matches("receipt:").count(), 1);
}

#[test]
fn returned_message_is_published_with_the_ack_or_not_at_all() {
    assert_eq!(
        Example::new("returned_message", "").story().lines().collect::<Vec<_>>(),
        [
            "after a crash: 0",
            r#"handled again: {"order":1,"item":"lamp"}, {"order":1,"item":"e-book"}"#,
            "after an error: 2",
            "dead letters: 1",
            "parcels: 2",
            r#"printed: "order 1: lamp""#,
            r#"reminder in 3600s: "order 1: lamp""#,
        ]
    );
}

#[test]
fn typed_queue_publishes_handles_and_returns() {
    let story = Example::new("typed_queue", "").story();
    for (id, cents, total) in [(1, 1000, 1190), (2, 2000, 2380), (3, 3000, 3570), (4, 4000, 4760)] {
        let waiting = format!(r#"waiting in orders: {{"id":{id},"cents":{cents}}}"#);
        let sent = format!("invoice of order {id}: {total} cents");
        assert_lines(&story, &[&waiting, &sent, "billed: 11900 cents", "left: 0"]);
    }
    assert_eq!(story.matches("invoice of").count(), 4);
}

#[test]
fn failure_shows_what_each_error_means() {
    assert_eq!(
        Example::new("failure", "").story().lines().collect::<Vec<_>>(),
        [
            "after 0ns, 0 failed: Retried(1s)",
            "after 1s, 1 failed: Retried(300s)",
            "after 301s, 2 failed: Snoozed(28800s)",
            "after 29101s, 2 failed: Acked",
            "`1`: Terminal(Rejected)",
            "`one list.csv`: Terminal(Rejected)",
            "`1 not-there.csv`: Snoozed(3600s)",
            "mails: rejected (Address)",
            "imports: rejected (&str)",
            "imports: rejected (ParseIntError)",
        ]
    );
}

#[test]
fn batch_shows_an_outcome_for_each_message() {
    assert_eq!(
        Example::new("batch", "").story().lines().collect::<Vec<_>>(),
        [
            "a batch of 100",
            "a batch of 50",
            r#"{"acked": 148, "ended for good": 1, "to be tried again": 2}"#,
            "a batch of 1",
            r#"{"/home": 100, "/news": 49}"#,
            "dead: before the page was there",
            "dead: decode",
            "pages: /a and /b",
            "pages: /c",
            "left: 0",
        ]
    );
}

#[test]
fn sync_handler_runs_on_threads_and_hears_of_its_timeout() {
    let story = Example::new("sync_handler", "").story();
    for photo in ["beach", "dunes", "ferry", "light"] {
        assert_lines(&story, &[&format!("{photo} is small"), "most photos at once: 2"]);
    }
    assert_lines(&story, &["most photos at once: 2", "dead: films, timeout"]);
    assert_lines(&story, &["sunset is given up"]);
}

#[test]
fn middleware_shows_what_layers_see_and_answer() {
    assert_eq!(
        Example::new("middleware", "").story().lines().collect::<Vec<_>>(),
        [
            "> payments 7",
            "  paying 7",
            "< Ack",
            "> payments 13",
            "  paying 13",
            "< Ack",
            "> payments 8",
            r#"< Reject("an unknown tenant")"#,
            "> payments 9",
            "< Err, kind tenant",
            "> payments x",
            "< Err, kind decode",
            r#"{"Ack": 2, "Err, kind decode": 1, "Err, kind tenant": 1, "Reject(\"an unknown tenant\")": 1}"#,
            "dead: an unknown tenant",
            "dead: tenant",
            "dead: decode",
        ]
    );
}

#[test]
fn router_gives_each_region_its_own() {
    let story = Example::new("router", "").story();
    // Order is certain within a queue only.
    for line in [
        "eu.refunds: nothing to do",
        "us.refunds: refund of 7 from America",
        "invoices: 210 sent from headquarters",
        "invoices: 120 sent from headquarters",
    ] {
        assert_lines(&story, &[line, "left: 0"]);
    }
    assert_eq!(story.lines().count(), 5, "{story}");
}

#[test]
fn tracing_shows_what_messages_inherit_and_that_they_expire() {
    assert_eq!(
        Example::new("tracing", "").story().lines().collect::<Vec<_>>(),
        [
            "request: ids A",
            "orders: ids AB, correlation web-7",
            "audit: ids ABC, correlation audit-1",
            "invoices: ids ABD, correlation web-7",
            "audit: ids AE, correlation web-7",
            "offers: expired",
            "request",
            "  publish orders",
            "    process orders",
            "      create audit",
            "        process audit",
            "      create invoices",
            "        process invoices",
            "  publish audit",
            "    process audit",
            "publish offers",
            "  process offers",
            "  process offers",
        ]
    );
}

#[test]
fn metrics_shows_what_prometheus_and_probes_see() {
    let of = |name: &str, more: &str, value: u32| {
        format!(r#"outbox_{name}_total{{queue="orders",subscriber="pack"{more}}} {value}"#)
    };
    let retry_terminal = r#",reason="retry_terminal""#;
    let story = Example::new("metrics", "").story();
    let expected = [
        "before the start: HTTP/1.1 503 Service Unavailable".to_owned(),
        "while it runs: HTTP/1.1 200 OK".to_owned(),
        "sink: row 3 of orders is dead, retry_terminal".to_owned(),
        "after the stop: HTTP/1.1 503 Service Unavailable".to_owned(),
        of("acked", "", 3),
        of("dead_letters_written", retry_terminal, 1),
        of("dispatched", "", 5),
        of("exceptions", r#",exception_type="String""#, 2),
        of("fetched_messages", "", 5),
        r#"outbox_published_messages_total{queue="orders"} 4"#.to_owned(),
        r#"outbox_publishes_total{queue="orders",status="success"} 1"#.to_owned(),
        of("retried", "", 1),
        of("terminal", retry_terminal, 1),
    ];
    assert_eq!(story.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn web_answers_requests_and_handles_what_they_publish() {
    let story = Example::new("web", "").story();
    assert_lines(&story, &["packed: 7 cookies", "answered: order 1", "left: 0"]);
}

#[test]
fn library_handlers_are_linked_by_name() {
    let story = Example::new("library_handlers", "").story();
    assert!(story.starts_with("the app cannot start:\n"), "{story}");
    assert!(
        story.contains(
            "it takes `State<alloc::string::String>`, but the app was given no such value"
        )
    );
    assert_lines(&story, &["Welcome, Ann!", "left: 0"]);
}
