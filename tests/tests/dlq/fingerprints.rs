//! Of an error's message the words count, and nothing else, as seen through the engine.

use outbox::testing::TestBroker;
use outbox::{Context, Subscriber};
use proptest::prelude::*;

/// The fingerprints of letters whose handler failed with these messages.
fn of(messages: &[String]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fails = Subscriber::new("fails", "q", |ctx: Context| async move {
            Err::<(), String>(ctx.decode::<String>().unwrap())
        });
        let broker = TestBroker::with([fails.retry(outbox::retry::NoRetry)]);
        for message in messages {
            broker.publish("q", message).await.unwrap();
        }
        broker.run_until_idle().await;
        let letters = broker.dlq_rows();
        assert_eq!(letters.len(), messages.len());
        letters.into_iter().map(|letter| letter.fingerprint.unwrap()).collect()
    })
}

fn word() -> impl Strategy<Value = String> {
    // No word is a hexadecimal number by chance.
    "[g-z]{1,12}"
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f32>().prop_filter("a number", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        any::<u64>().prop_map(|n| format!("{n:#x}")),
        any::<u128>().prop_map(|n| uuid::Uuid::from_u128(n).to_string()),
        "[a-z ]{0,9}".prop_map(|text| format!("'{text}'")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_do_not_matter(words in prop::collection::vec(word(), 1..6),
        a in prop::collection::vec(value(), 6), b in prop::collection::vec(value(), 6)) {
        let with = |values: &[String]| {
            let pairs = words.iter().zip(values).map(|(word, value)| format!("{word} {value}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        let found = of(&[with(&a), with(&b)]);
        prop_assert_eq!(&found[0], &found[1]);
    }

    #[test]
    fn words_do(words in prop::collection::vec(word(), 1..6), other in word(), at in any::<prop::sample::Index>()) {
        let mut changed = words.clone();
        let at = at.index(words.len());
        prop_assume!(changed[at] != other);
        changed[at] = other;
        let found = of(&[words.join(" 7 "), changed.join(" 7 ")]);
        prop_assert_ne!(&found[0], &found[1]);
    }
}
