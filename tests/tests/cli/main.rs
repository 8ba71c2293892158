//! The command line, through the real program, on both databases, as text and as JSON.

mod bench;
mod dlq_ahead;
mod dlq_letters;
mod dlq_months;
mod dlq_replay;
mod doctor;
mod flags;
mod frame;
mod grants;
mod half_way;
mod looking;
mod migrate;
mod mounted;
mod operations;
mod pauses;
mod peek;
mod plant;
mod program;
mod publish;
mod stats;
mod why;
