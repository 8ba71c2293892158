//! What `last_exception` holds.

use std::fmt;

use outbox::retry::NoRetry;

use super::*;

const MARK: &str = "…[truncated]";
const LIMIT: usize = 8 * 1024;

/// An error whose `Debug` is a text, with a source.
struct Error(String, Option<Box<Error>>);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert_ne!(self.0, "panic", "asked to");
        f.write_str(&self.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("display")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|error| error as _)
    }
}

/// By mistake, its source is itself.
#[derive(Debug)]
struct Circular;

impl fmt::Display for Circular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("circular")
    }
}

impl std::error::Error for Circular {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

#[tokio::test]
async fn an_error_that_is_its_own_source_fails_as_any_other() {
    let subscriber = it(|| Err::<(), _>(Circular)).retry(NoRetry);
    let (broker, ending) = first_ending(subscriber).await;
    assert_eq!(ending, Ending::Terminal(outbox::FailureReason::RetryTerminal));
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("Circular"));
    assert!(letter.last_exception.unwrap().starts_with("Circular\ncaused by: Circular"));
}

async fn exception_of(text: &str) -> String {
    let text = text.to_owned();
    let subscriber = it(move || Err::<(), _>(Error(text.clone(), None)));
    let (broker, _) = first_ending(subscriber.retry(NoRetry)).await;
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("exceptions::Error"));
    letter.last_exception.unwrap()
}

#[tokio::test]
async fn it_is_the_debug_form_of_the_error_and_of_its_sources() {
    let make = || {
        Error(
            "top".into(),
            Some(Error("middle".into(), Some(Error("root".into(), None).into())).into()),
        )
    };
    let (broker, _) = first_ending(it(move || Err::<(), _>(make())).retry(NoRetry)).await;
    let text = only_letter(&broker).last_exception.unwrap();
    assert_eq!(text, "top\ncaused by: middle\ncaused by: root");
}

#[tokio::test]
async fn an_anyhow_error_shows_its_whole_chain() {
    let make = || anyhow::Error::new(Error("root".into(), None)).context("while confirming");
    let (broker, _) = first_ending(it(move || Err::<(), _>(make())).retry(NoRetry)).await;
    let text = only_letter(&broker).last_exception.unwrap();
    assert!(text.starts_with("while confirming\n\nCaused by:\n    display"), "{text}");
}

#[tokio::test]
async fn eight_kib_fit_and_one_byte_more_is_cut() {
    let fits = "x".repeat(LIMIT);
    assert_eq!(exception_of(&fits).await, fits);
    let cut = exception_of(&"x".repeat(LIMIT + 1)).await;
    assert_eq!(cut.len(), LIMIT);
    assert!(cut.ends_with(MARK));
}

#[tokio::test]
async fn it_is_cut_between_characters_wherever_the_limit_falls() {
    for character in ["é", "€", "😀"] {
        for shift in 0..4 {
            let cut = exception_of(&("x".repeat(shift) + &character.repeat(LIMIT))).await;
            assert!(cut.len() <= LIMIT && cut.len() > LIMIT - 4);
            assert!(cut.strip_suffix(MARK).unwrap().ends_with(character));
        }
    }
}

#[tokio::test]
async fn a_nul_is_shown_and_cannot_keep_the_letter_from_being_written() {
    assert_eq!(exception_of("a\0b\0").await, "a␀b␀");
    // Longer after the replacement than before: still within the limit.
    let many = exception_of(&"\0".repeat(LIMIT)).await;
    assert!(many.len() <= LIMIT && !many.contains('\0') && many.ends_with(MARK));
}

#[tokio::test]
async fn an_error_whose_debug_panics_is_still_buried() {
    let text = exception_of("panic").await;
    assert!(text.contains("could not be shown"), "{text}");
}

#[tokio::test]
async fn a_note_is_freed_of_nul_and_cut_as_well() {
    let subscriber = it(|| outbox::Outcome::reject(format!("a\0{}", "é".repeat(LIMIT))));
    let (broker, _) = first_ending(subscriber).await;
    let note = only_letter(&broker).note.unwrap();
    assert!(note.starts_with("a␀é") && note.ends_with(MARK) && note.len() <= LIMIT);
}

#[tokio::test]
async fn a_megabyte_of_error_costs_eight_kib() {
    assert_eq!(exception_of(&"x".repeat(10 << 20)).await.len(), LIMIT);
}
