//! What several test binaries share: the databases they run on, handlers that
//! tell what they do, and the log.

pub mod backend;
pub mod bombs;
pub mod capture;
pub mod clock;
pub mod db;
pub mod disk;
pub mod frames;
pub mod hostile;
pub mod kept;
pub mod letters;
pub mod pooler;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod proxy;
pub mod roles;
pub mod server;
pub mod sqlite;
pub mod wait;
pub mod wire;
pub mod worker;
