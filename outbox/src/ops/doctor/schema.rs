//! Whether the tables are as they have to be.

use super::names::count;
use super::report::{Found, Severity};
use crate::error::Result;
use crate::ops::Operator;

pub(super) async fn check(operator: &Operator, found: &mut Found) -> Result<String> {
    let differences = operator.differences(true).await?;
    if differences.is_empty() {
        return Ok("the tables are as they have to be".into());
    }
    let said = count(differences.len() as u64, "difference");
    for difference in differences {
        let (severity, why) = if difference.fatal {
            (Severity::Error, "the engine cannot work like this: no program will start")
        } else {
            (Severity::Warning, "it works, slowly or less safely")
        };
        found.add(severity, difference.what, why, difference.mend);
    }
    Ok(said)
}
