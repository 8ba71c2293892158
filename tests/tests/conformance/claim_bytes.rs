//! A claim ends where its rows come to 32 MiB: of large ones more would come than whoever
//! claims them can hold.

use std::time::Duration;

use outbox::Outgoing;

use crate::bench::{Bench, Steps};

/// What is left can be claimed at once.
async fn a_claim_takes_no_more_once_it_has_32_mib<B: Bench>(b: B) {
    let mut ids = Vec::new();
    for mib in [15, 16, 15, 1, 1] {
        let message = Outgoing::raw("q", vec![7; mib << 20]);
        ids.push(b.send(message).await.id().unwrap());
    }
    let taken = b.taken(&b.claim_of(&["q"], 4)).await;
    let got: Vec<i64> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
    assert_eq!((got.as_slice(), taken.next), (&ids[..3], Some(Duration::ZERO)));
    assert_eq!(b.row(ids[3]).await.token, None);
    assert_eq!(b.claim_ids(&["q"], 4).await, ids[3..]);
}

async fn headers_count_as_payloads_do<B: Bench>(b: B) {
    let mut ids = Vec::new();
    for (payload, headers) in [(1, 14), (14, 0), (1, 14), (1, 0)] {
        let message = Outgoing::raw("q", vec![7; payload << 20]);
        let message = message.header("filled", "7".repeat(headers << 20));
        ids.push(b.send(message).await.id().unwrap());
    }
    let taken = b.taken(&b.claim_of(&["q"], 4)).await;
    let got: Vec<i64> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
    assert_eq!((got.as_slice(), taken.next), (&ids[..3], Some(Duration::ZERO)));
    assert_eq!(b.row(ids[3]).await.deliveries, 0);
    assert_eq!(b.claim_ids(&["q"], 4).await, ids[3..]);
}

/// A database may keep them in a hundredth of their length.
async fn headers_count_as_long_as_they_are_read<B: Bench>(b: B) {
    let headers = "7".repeat(150_000);
    let message = |_| Outgoing::raw("q", "x").header("filled", headers.clone());
    let published = b.send_batch((0..250).map(message).collect()).await;
    let ids: Vec<_> = published.iter().map(|one| one.id().unwrap()).collect();
    // The last of them begins before 32 MiB.
    let fit = (32 << 20) / 150_200 + 1;
    assert_eq!(b.claim_ids(&["q"], 250).await, ids[..fit]);
    assert_eq!(b.claim_ids(&["q"], 250).await, ids[fit..]);
}

/// In the order of all of its queues, whichever has the large ones.
async fn of_several_queues_a_claim_takes_the_first_32_mib<B: Bench>(b: B) {
    // In the order of a claim. Two and two are due together: between them the id decides.
    let rows = [
        ("large", 15 << 20, 1),
        ("small", 1, 1),
        ("large", 16 << 20, 2),
        ("small", 1, 2),
        ("large", 15 << 20, 3),
        ("small", 1, 3),
        ("large", 1 << 20, 4),
    ];
    let mut ids = [0; 7];
    for n in [4, 6, 2, 0, 5, 3, 1] {
        let (queue, bytes, minutes) = rows[n];
        let due = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes);
        let message = Outgoing::raw(queue, vec![7; bytes]).at(due);
        ids[n] = b.send(message).await.id().unwrap();
    }
    let taken = b.taken(&b.claim_of(&["small", "large"], 10)).await;
    let got: Vec<i64> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
    assert_eq!((got.as_slice(), taken.next), (&ids[..5], Some(Duration::ZERO)));
    for row in b.rows().await.iter().filter(|row| ids[5..].contains(&row.id)) {
        assert_eq!((row.token, row.acquired, row.deliveries), (None, None, 0));
    }
    assert_eq!(b.claim_ids(&["small", "large"], 10).await, ids[5..]);
}

cases! {
    a_claim_takes_no_more_once_it_has_32_mib,
    headers_count_as_payloads_do,
    headers_count_as_long_as_they_are_read,
    of_several_queues_a_claim_takes_the_first_32_mib,
}
