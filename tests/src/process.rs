//! What the system tells of a process.

use std::fmt::Display;

/// A figure of its memory in KiB, such as `VmHWM`; `None` when it has ended.
pub fn memory(pid: impl Display, figure: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}
