//! Handlers inside fn bodies, where local types and imports count.
#![deny(warnings)]

mod jobs {
    #[outbox::subscriber("q")]
    pub(super) async fn confirm(_: u64) {}
}

pub(super) fn main() {
    use outbox::{State, subscriber};

    #[derive(Clone)]
    struct Mailer;

    #[subscriber("inner")]
    async fn confirm(_: u64, _: State<Mailer>) {}

    let _ = Mailer;
    assert_eq!(confirm::subscriber().queues(), ["inner"]);
    assert_eq!(jobs::confirm::subscriber().queues(), ["q"]);
}
