//! The command line, through the real program, on both databases, as text and as JSON.

mod migrate;
mod pauses;
mod peek;
mod program;
mod publish;
mod stats;
mod why;
