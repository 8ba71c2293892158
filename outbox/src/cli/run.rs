//! `run`: what the program is for.

use clap::Args;
use serde_json::json;

use super::{Context, Done, Trouble};

/// Run the handlers of this program until SIGINT or SIGTERM, then drain.
///
/// A second signal ends it at once; what it had claimed comes back when the leases end.
#[derive(Debug, Args)]
pub(super) struct Run {}

impl Run {
    // Like its siblings.
    #[allow(clippy::needless_pass_by_value)]
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        context.app.clone().run().await?;
        context.out.only_json(&json!({ "ended": true }));
        Ok(Done::Good)
    }
}
