//! Sinks of the user's own: what they are told, and that they can do no harm.

mod harm;
mod told;
