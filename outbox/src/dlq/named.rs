//! Looks up letters that were named by their ids.

use super::{BATCH, DeadLetters, Filter, Kept, Status};
use crate::error::Result;
use crate::ops::on_desk;

/// A letter's id and status, or why there is none.
pub(crate) type Standing = (i64, std::result::Result<Status, Kept>);

impl DeadLetters {
    /// Looks up these letters under a filter. A status in the filter does not count.
    pub(crate) async fn standing(&self, filter: &Filter, named: &[i64]) -> Result<Vec<Standing>> {
        let mut all = Vec::new();
        for ids in named.chunks(BATCH as usize) {
            let asked = Filter { status: None, ..filter.clone() }.ids(ids.iter().copied());
            let found = on_desk!(self.operator, desk => desk.statuses(&asked).await)?;
            let missed =
                Filter::new().ids(ids.iter().copied().filter(|id| !found.contains_key(id)));
            let left_out = on_desk!(self.operator, desk => desk.statuses(&missed).await)?;
            all.extend(ids.iter().map(|id| {
                let missing = if left_out.contains_key(id) { Kept::LeftOut } else { Kept::Unknown };
                (*id, found.get(id).copied().ok_or(missing))
            }));
        }
        Ok(all)
    }
}
