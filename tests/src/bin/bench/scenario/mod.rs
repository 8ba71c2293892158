//! What is measured, one file each.

pub mod drain;

use anyhow::{Result, bail};

use crate::Args;
use crate::report::Report;

pub async fn run(args: &Args, url: &str) -> Result<Vec<Report>> {
    match args.scenario.as_str() {
        "drain" => Ok(vec![drain::run(args, url).await?]),
        other => bail!("there is no scenario {other:?}"),
    }
}
