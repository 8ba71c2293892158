//! What several test binaries share: the databases they run on.

pub mod backend;
pub mod postgres;
pub mod sqlite;
