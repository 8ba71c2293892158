//! What lies in a queue.

use std::time::Duration;

use outbox::Outgoing;
use outbox::ops::{Document, Payload, PeekOptions};
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::{lease, operator};

on_both!(
    rows_are_shown_in_the_order_of_claims_and_left_as_they_are,
    payloads_are_decoded_by_their_bytes,
    what_is_read_of_a_payload_is_bounded,
    a_name_that_no_queue_has_is_refused,
);

async fn rows_are_shown_in_the_order_of_claims_and_left_as_they_are(db: &Db) {
    let later = db.send(Outgoing::new("q", &1).delay(Duration::from_secs(60)).timer_id("t")).await;
    let first = db.publish("q", 2).await;
    let held = db.publish("q", 3).await;
    lease(db, held, 3).await;
    db.publish("other", 4).await;
    let rows = operator(db).peek("q", &PeekOptions::default()).await.unwrap();
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, [first, held, later.id().unwrap()]);
    assert!(rows[1].leased_at.is_some() && rows[1].token.is_some() && rows[0].token.is_none());
    assert_eq!((rows[1].deliveries, rows[2].timer_id.as_deref()), (1, Some("t")));
    assert_eq!(rows[0].headers.value()["content-type"], "application/json");
    let due = rows[2].due_at.duration_since(rows[2].seen_at).unwrap();
    assert!(due > Duration::from_secs(30) && due <= Duration::from_secs(60), "{due:?}");
    assert_eq!(operator(db).peek("q", &PeekOptions::default().rows(2)).await.unwrap().len(), 2);
    assert_eq!((db.leased().await, db.deliveries().await, db.rows().await), (1, 1, 4));
}

async fn payloads_are_decoded_by_their_bytes(db: &Db) {
    let kept: [(&[u8], Payload); 4] = [
        (br#"{"a": [1, null]}"#, Payload::Json(Document::of(r#"{"a":[1,null]}"#).unwrap())),
        (b"\x1b[2J \xc3\xa9", Payload::Text("\u{1b}[2J é".into())),
        (&[0xff, 0, 1], Payload::Bytes("ff0001".into())),
        (b"", Payload::Text(String::new())),
    ];
    for (bytes, _) in &kept {
        db.send(Outgoing::raw("q", bytes.to_vec()).content_type("application/json")).await;
    }
    let rows = operator(db).peek("q", &PeekOptions::default()).await.unwrap();
    assert_eq!(rows.len(), kept.len());
    for (row, (bytes, payload)) in rows.iter().zip(&kept) {
        assert_eq!((&row.payload, row.payload_bytes), (payload, bytes.len() as u64));
        assert!(!row.payload_cut);
    }
}

async fn what_is_read_of_a_payload_is_bounded(db: &Db) {
    db.send(Outgoing::new("q", &"x".repeat(100_000))).await;
    let [cut] = &operator(db).peek("q", &PeekOptions::default()).await.unwrap()[..] else {
        panic!()
    };
    assert_eq!((cut.payload_bytes, cut.payload_cut), (100_002, true));
    assert_eq!(cut.payload, Payload::Text(format!("\"{}", "x".repeat(4095))));
    let options = PeekOptions::default().full();
    let [whole] = &operator(db).peek("q", &options).await.unwrap()[..] else { panic!() };
    let text = format!("\"{}\"", "x".repeat(100_000));
    assert_eq!(whole.payload, Payload::Json(Document::of(&text).unwrap()));
}

async fn a_name_that_no_queue_has_is_refused(db: &Db) {
    let long = "q".repeat(256);
    for (name, why) in [("", "empty"), (long.as_str(), "256"), ("a\0b", "NUL")] {
        let told = operator(db).peek(name, &PeekOptions::default()).await.unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
}
