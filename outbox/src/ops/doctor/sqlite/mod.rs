//! A SQLite file: whether it is whole, can be written, and does not grow.

mod busy;
mod file;
mod integrity;
mod journal;
mod wal;
mod writing;

use super::{Limits, Report, make};
use crate::store::sqlite::SqliteDesk;

pub(super) async fn examine(desk: &SqliteDesk, limits: &Limits, report: &mut Report) {
    make!(report, "integrity", integrity::check(desk));
    make!(report, "journal", journal::check(desk));
    make!(report, "busy", busy::check(desk));
    make!(report, "writing", writing::check(desk));
    make!(report, "file", file::check(desk));
    make!(report, "wal", wal::check(desk, limits));
}
