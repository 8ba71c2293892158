//! The best loops that we can write by hand, with sqlx and nothing else.

pub mod drain;
pub mod due;
pub mod failing;
pub mod publish;
pub mod slow;
pub mod sqlite;
pub mod steady;
pub mod wake;
