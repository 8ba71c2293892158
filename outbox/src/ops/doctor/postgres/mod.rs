//! A PostgreSQL server: what there is room for, and who is in the way.

mod connections;
mod listen;
mod locks;
mod notify;
mod path;
mod pooler;
mod snapshots;
mod vacuum;

pub(crate) use connections::Connections;
pub(crate) use snapshots::{Holder, Kind, Snapshots};
pub(crate) use vacuum::Vacuum;

use super::{Limits, Report, make};
use crate::store::postgres::PgDesk;

pub(super) async fn examine(desk: &PgDesk, limits: &Limits, report: &mut Report) {
    make!(report, "connections", connections::check(desk, limits));
    make!(report, "pooler", pooler::check(desk));
    make!(report, "listen", listen::check(desk, limits));
    make!(report, "notify", notify::check(desk, limits));
    make!(report, "snapshots", snapshots::check(desk, limits));
    make!(report, "locks", locks::check(desk));
    make!(report, "vacuum", vacuum::check(desk, limits));
    make!(report, "path", path::check(desk));
}
