//! The best loops that we can write by hand, with sqlx and nothing else.

pub mod drain;
