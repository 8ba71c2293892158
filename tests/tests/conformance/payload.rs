//! Payload bytes are never touched.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::Store;

use crate::bench::{Bench, Steps, death, retry};

async fn comes_back<B: Bench>(b: B, payload: Vec<u8>) {
    let id = b.send(Outgoing::raw("q", payload.clone())).await.id().unwrap();
    assert!(b.row(id).await.payload == payload);
    assert!(b.pending("q", 1).await[0].payload == payload);
    assert!(b.claim(&["q"], 1).await[0].row.payload == payload);
}

async fn every_byte_value_comes_back<B: Bench>(b: B) {
    comes_back(b, (0..=255).collect()).await;
}

async fn no_bytes_come_back<B: Bench>(b: B) {
    comes_back(b, Vec::new()).await;
}

async fn bytes_that_are_no_utf_8_come_back<B: Bench>(b: B) {
    comes_back(b, vec![0xff, 0xfe, 0x00, 0xc3, 0x28]).await;
}

async fn a_megabyte_comes_back<B: Bench>(b: B) {
    let bytes = (0..1_048_576_u32).map(|n| u8::try_from(n * 31 % 251).unwrap());
    comes_back(b, bytes.collect()).await;
}

async fn the_largest_allowed_payload_is_allowed<B: Bench>(b: B) {
    let publisher = b.publisher().clone().max_payload(10);
    let mut tx = b.begin().await;
    publisher.send(&mut tx, Outgoing::raw("q", vec![7; 10])).await.unwrap();
    b.commit(tx).await;
    assert_eq!(b.rows().await[0].payload, [7; 10]);
}

async fn a_value_is_json<B: Bench>(b: B) {
    let id = b.send(Outgoing::new("q", &("é", 1, None::<i32>))).await.id().unwrap();
    assert_eq!(b.row(id).await.payload, "[\"é\",1,null]".as_bytes());
}

async fn a_batch_keeps_the_bytes_of_each_message<B: Bench>(b: B) {
    let payloads = [(0..=255).collect(), Vec::new(), vec![0], vec![0xff; 3], b"{}".to_vec()];
    let batch = payloads.iter().map(|bytes| Outgoing::raw("q", bytes.clone()));
    b.send_batch(batch.collect()).await;
    let rows = b.rows().await;
    assert_eq!(rows.into_iter().map(|row| row.payload).collect::<Vec<_>>(), payloads);
}

async fn retries_keep_the_bytes<B: Bench>(b: B) {
    let bytes: Vec<u8> = (0..=255).rev().collect();
    b.send(Outgoing::raw("q", bytes.clone())).await;
    for _ in 0..3 {
        let lease = b.take("q").await;
        b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    }
    assert_eq!(b.rows().await[0].payload, bytes);
}

async fn a_dead_letter_keeps_the_bytes<B: Bench>(b: B) {
    let bytes: Vec<u8> = (0..=255).collect();
    b.send_batch(vec![Outgoing::raw("q", bytes.clone()), Outgoing::raw("q", "")]).await;
    for lease in b.take_many("q", 2).await {
        b.store().bury(&[death(lease)]).await.unwrap();
    }
    let letters = b.letters().await;
    assert_eq!(letters[0].payload, bytes);
    assert!(letters[1].payload.is_empty());
}

cases! {
    every_byte_value_comes_back,
    no_bytes_come_back,
    bytes_that_are_no_utf_8_come_back,
    a_megabyte_comes_back,
    the_largest_allowed_payload_is_allowed,
    a_value_is_json,
    a_batch_keeps_the_bytes_of_each_message,
    retries_keep_the_bytes,
    a_dead_letter_keeps_the_bytes,
}
