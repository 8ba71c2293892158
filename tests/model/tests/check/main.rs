//! The model, checked exhaustively: no state that can be reached breaks a promise, and
//! every mistake in the rules leads to one that does.

mod checked;
mod exhaustive;
mod mutants;
