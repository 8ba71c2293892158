//! Headers: what Rust writes and what others wrote.

use outbox::testing::store::Store;
use outbox::{Headers, Outgoing, Row};
use serde_json::{Value, json};

use crate::bench::{Bench, Steps, death};

async fn claim_one<B: Bench>(b: &B) -> Row {
    *b.claim(&["q"], 1).await.remove(0).row
}

async fn headers_come_back<B: Bench>(b: B) {
    b.send(Outgoing::new("q", &1).header("tenant", "acme").header("", "x")).await;
    let headers = claim_one(&b).await.headers().unwrap();
    assert_eq!(headers.get("tenant"), Some("acme"));
    assert_eq!(headers.get(""), Some("x"));
    assert_eq!(headers.content_type(), Some("application/json"));
    // And its correlation and tracking ids.
    assert_eq!(headers.len(), 5);
}

async fn unicode_and_quotes_come_back<B: Bench>(b: B) {
    let text = "日本 \u{1f980} \" \\ ' \n \u{7f} é $1 ?1 %s";
    b.send(Outgoing::new("q", &1).header(text, text)).await;
    let headers = claim_one(&b).await.headers().unwrap();
    assert_eq!(headers.get(text), Some(text));
}

async fn a_missing_correlation_id_is_made_up<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    let claimed = b.claim(&["q"], 2).await;
    let id = |n: usize| claimed[n].row.headers().unwrap().correlation_id().unwrap().to_owned();
    assert_eq!(id(0).len(), 36);
    assert_ne!(id(0), id(1));
}

async fn a_given_correlation_id_is_kept<B: Bench>(b: B) {
    b.send(Outgoing::new("q", &1).correlation_id("c-1")).await;
    assert_eq!(claim_one(&b).await.headers().unwrap().correlation_id(), Some("c-1"));
}

async fn a_header_may_name_the_content_type<B: Bench>(b: B) {
    b.send(Outgoing::new("q", &1).header("content-type", "application/x-order+json")).await;
    let headers = claim_one(&b).await.headers().unwrap();
    assert_eq!(headers.content_type(), Some("application/x-order+json"));
}

async fn raw_bytes_have_no_content_type<B: Bench>(b: B) {
    b.send(Outgoing::raw("q", "x")).await;
    assert_eq!(claim_one(&b).await.headers().unwrap().content_type(), None);
}

async fn nested_json_of_others_is_kept<B: Bench>(b: B) {
    let id = b.put("q").await;
    let numbers = json!([9_007_199_254_740_993_i64, 4.467_440_737_094_467_6e33]);
    let nested = json!({ "a": [1, 2.5, null, { "b": true }], "n": numbers });
    b.set_headers(id, Some(&nested.to_string())).await;
    let headers = claim_one(&b).await.headers().unwrap();
    assert_eq!(headers.value("a"), Some(&nested["a"]));
    assert_eq!(headers.value("n"), Some(&nested["n"]));
    assert_eq!(headers.get("a"), None);
}

async fn null_headers_are_no_headers<B: Bench>(b: B) {
    let ids = b.put_many("q", 2).await;
    b.set_headers(ids[0], None).await;
    b.set_headers(ids[1], Some("null")).await;
    let claimed = b.claim(&["q"], 2).await;
    assert_eq!(claimed.len(), 2);
    for claimed in claimed {
        assert_eq!(claimed.row.headers().unwrap(), Headers::new());
    }
}

/// Rule 5: nothing a row contains can stop the loop.
async fn headers_that_are_no_object_do_not_stop_a_claim<B: Bench>(b: B) {
    let ids = b.put_many("q", 4).await;
    for (id, text) in ids.iter().zip(["[1]", "\"text\"", "7"]) {
        b.set_headers(*id, Some(text)).await;
    }
    let claimed = b.claim(&["q"], 10).await;
    assert_eq!(claimed.len(), 4);
    assert!(claimed[..3].iter().all(|one| one.row.headers().is_err()));
    assert!(claimed[3].row.headers().is_ok());
}

async fn headers_that_are_no_object_can_be_dead_lettered<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.set_headers(id, Some("[1]")).await;
    let lease = b.take("q").await;
    assert_eq!(b.store().bury(&[death(lease)]).await.unwrap(), [true]);
    assert!(b.letters().await[0].headers.as_ref().is_some_and(|headers| !headers.is_object()));
}

async fn an_answer_leaves_out_what_should_be_text_and_is_not<B: Bench>(b: B) {
    let id = b.put("q").await;
    let foreign = json!({
        "content-type": null, "correlation_id": 5, "outbox-expires-in": 1000, "tenant": 7
    });
    b.set_headers(id, Some(&foreign.to_string())).await;
    let headers = claim_one(&b).await.headers().unwrap();
    b.send(Outgoing::raw("answers", "x").headers(&headers)).await;
    let answer = b.claim(&["answers"], 1).await.remove(0).row.headers().unwrap();
    assert_eq!((answer.value("content-type"), answer.value("tenant")), (None, Some(&json!(7))));
    assert_eq!(
        (answer.correlation_id().map(str::len), answer.value("outbox-expires-in")),
        (Some(36), None)
    );
}

async fn an_answer_has_its_own_content_type_whenever_it_is_named<B: Bench>(b: B) {
    b.put("q").await;
    let headers = claim_one(&b).await.headers().unwrap();
    let kind = "application/vnd.shop+json";
    let answer = || Outgoing::new("answers", &1);
    b.send(answer().content_type(kind).headers(&headers)).await;
    b.send(answer().headers(&headers).content_type(kind)).await;
    let bytes = || Outgoing::raw("answers", "{}");
    b.send(bytes().content_type(kind).headers(&headers)).await;
    b.send(bytes().headers(&headers).content_type(kind)).await;
    let claimed = b.claim(&["answers"], 4).await;
    assert_eq!(claimed.len(), 4);
    for claimed in claimed {
        assert_eq!(claimed.row.headers().unwrap().content_type(), Some(kind));
    }
}

async fn an_answer_has_the_correlation_id_that_it_is_given<B: Bench>(b: B) {
    b.put("q").await;
    let headers = claim_one(&b).await.headers().unwrap();
    let answer = || Outgoing::new("answers", &1);
    b.send(answer().correlation_id("own").headers(&headers)).await;
    b.send(answer().headers(&headers).correlation_id("own")).await;
    b.send(answer().headers(&headers).header("correlation_id", "own")).await;
    b.send(answer().header("correlation_id", "own").headers(&headers)).await;
    let claimed = b.claim(&["answers"], 4).await;
    let ids = claimed
        .iter()
        .map(|claimed| claimed.row.headers().unwrap().correlation_id().map(str::to_owned));
    let own = Some("own".to_owned());
    let last = headers.correlation_id().map(str::to_owned);
    assert_eq!(ids.collect::<Vec<_>>(), [own.clone(), own.clone(), own, last]);
}

async fn a_batch_keeps_the_headers_of_each_message<B: Bench>(b: B) {
    let message = |n: i32| Outgoing::new("q", &n).header("n", n).header("é\"", "\\");
    b.send_batch((0..3).map(message).collect()).await;
    let claimed = b.claim(&["q"], 3).await;
    assert_eq!(claimed.len(), 3);
    for (n, claimed) in claimed.iter().enumerate() {
        let headers = claimed.row.headers().unwrap();
        assert_eq!(headers.value("n"), Some(&Value::from(n)));
        assert_eq!(headers.get("é\""), Some("\\"));
    }
}

async fn the_messages_of_a_batch_have_their_own_correlation_ids<B: Bench>(b: B) {
    b.send_batch((0..3).map(|n| Outgoing::new("q", &n)).collect()).await;
    let id = |row: Row| row.headers().unwrap().correlation_id().unwrap().to_owned();
    let ids: std::collections::HashSet<_> =
        b.claim(&["q"], 3).await.into_iter().map(|claimed| id(*claimed.row)).collect();
    assert_eq!(ids.len(), 3);
}

cases! {
    headers_come_back,
    unicode_and_quotes_come_back,
    a_missing_correlation_id_is_made_up,
    a_given_correlation_id_is_kept,
    a_header_may_name_the_content_type,
    raw_bytes_have_no_content_type,
    nested_json_of_others_is_kept,
    null_headers_are_no_headers,
    headers_that_are_no_object_do_not_stop_a_claim,
    headers_that_are_no_object_can_be_dead_lettered,
    an_answer_leaves_out_what_should_be_text_and_is_not,
    an_answer_has_its_own_content_type_whenever_it_is_named,
    an_answer_has_the_correlation_id_that_it_is_given,
    a_batch_keeps_the_headers_of_each_message,
    the_messages_of_a_batch_have_their_own_correlation_ids,
}
