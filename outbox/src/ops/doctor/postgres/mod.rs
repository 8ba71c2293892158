//! A PostgreSQL server: what there is room for, and who is in the way.

mod connections;
mod server;
mod snapshots;
mod vacuum;

pub(crate) use connections::Connections;
pub(crate) use snapshots::{Holder, Kind, Snapshots};
pub(crate) use vacuum::Vacuum;

use super::{Limits, Report, make};
use crate::store::postgres::PgDesk;

pub(super) async fn examine(desk: &PgDesk, limits: &Limits, report: &mut Report) {
    make!(report, "connections", connections::check(desk, limits));
    make!(report, "pooler", server::pooler(desk));
    make!(report, "listen", server::listen(desk, limits));
    make!(report, "notify", server::notify(desk, limits));
    make!(report, "snapshots", snapshots::check(desk, limits));
    make!(report, "locks", server::locks(desk));
    make!(report, "vacuum", vacuum::check(desk, limits));
    make!(report, "path", server::path(desk));
}
