//! What hostile names, payloads, notifications and arguments do: nothing. And what is
//! secret stays so.

mod bombs;
mod channels;
mod gate;
mod names;
mod notify;
mod plain;
#[path = "../cli/program.rs"]
#[allow(dead_code)] // the command line needs more of it
mod program;
mod publish;
mod secrets;
mod tables;
