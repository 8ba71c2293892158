//! What a handler may return.
#![deny(warnings)]

use outbox::{IntoOutcome, Outcome, subscriber};

#[subscriber("q")]
async fn outcome(_: u64) -> Outcome {
    Outcome::reject("no")
}

#[subscriber("q")]
async fn result(_: u64) -> Result<Outcome, std::io::Error> {
    Ok(Outcome::Ack)
}

#[subscriber("q")]
async fn any_error(id: u64) -> anyhow::Result<()> {
    anyhow::bail!("no order {id}")
}

#[subscriber("q")]
async fn with_context(id: String) -> anyhow::Result<()> {
    use anyhow::Context as _;
    id.parse::<u64>().with_context(|| format!("no order {id:?}"))?;
    Ok(())
}

#[subscriber("q")]
async fn reported(id: String) -> eyre::Result<Outcome> {
    if id.parse::<u64>()? == 0 {
        eyre::bail!("no order {id:?}");
    }
    Ok(Outcome::Ack)
}

#[subscriber("q")]
async fn in_words(id: String) -> Result<(), String> {
    id.parse::<u64>().map_err(|_| "no order")?;
    Ok(())
}

#[subscriber("q")]
async fn hidden(_: u64) -> impl IntoOutcome {}

#[subscriber("q")]
async fn hidden_error(_: u64) -> Result<(), impl std::error::Error + Send + Sync + 'static> {
    Ok::<_, std::io::Error>(())
}

#[subscriber("q")]
async fn hidden_inside(_: u64) -> Result<impl IntoOutcome, String> {
    Ok(Outcome::Ack)
}

pub(super) fn main() {}
