//! Letters that failed later than it is by the database's clock.

use outbox_tests::db::Db;

use crate::plant::{id_of, plant};
use crate::program::run;

async fn letters_ahead_of_the_clock_are_not_passed_over_in_silence(db: &Db) {
    plant(db, "orders", 1).await;
    let later = if db.is_postgres() {
        "now() + interval '1 hour'"
    } else {
        "CAST((unixepoch('subsec') + 3600) * 1000000 AS INTEGER)"
    };
    db.exec(format!("UPDATE outbox_dlq SET failed_at = {later}")).await;
    let ahead = id_of(db, 1).await.to_string();
    let told = "1 letter failed at a time ahead of the database's clock";
    let of_queue = ["--queue", "orders", "--yes"];
    for (verb, more, code) in [
        ("replay", &[][..], 1),
        ("resolve", &[], 1),
        ("ignore", &[], 1),
        ("purge", &["--status", "failed"], 0),
    ] {
        let args = [&["dlq", verb][..], &of_queue, more].concat();
        let ran = run(db, &args).await;
        assert!(ran.code == code && ran.out.starts_with("0 letters "), "{ran:?}");
        assert!(ran.err.contains(told), "{ran:?}");
        let ran = run(db, &[&args[..], &["--json"]].concat()).await;
        assert_eq!((ran.code, &ran.json()["ahead"]), (code, &1.into()), "{ran:?}");
    }
    // Beside those that are not, it is only told of.
    plant(db, "orders", 1).await;
    let ran = run(db, &[&["dlq", "resolve"][..], &of_queue].concat()).await;
    assert!(ran.code == 0 && ran.out.starts_with("1 letter "), "{ran:?}");
    assert!(ran.err.contains(told), "{ran:?}");
    // By its name it goes.
    let ran = run(db, &["dlq", "ignore", &ahead]).await;
    assert!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
    // The one that is resolved goes, too.
    for _ in 0..2 {
        // Every night, whether there is anything to delete or not.
        let ran = run(db, &["dlq", "purge", "--all", "--yes"]).await;
        assert!(ran.code == 0 && ran.err.contains(told), "{ran:?}");
    }
    assert!(run(db, &["dlq", "purge", &ahead, "--yes"]).await.good().starts_with("1 letter "));
}

outbox_tests::on_both!(letters_ahead_of_the_clock_are_not_passed_over_in_silence);
