//! What the test binaries share.

pub mod capture;
pub mod db;
pub mod probe;
pub mod wait;
