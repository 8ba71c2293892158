//! What a worker takes of the machine, looked at from outside.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outbox_tests::process::memory;
use tokio::time::sleep;

use crate::fleet::Fleet;

const PAUSE: Duration = Duration::from_millis(100);

/// The most that was seen of a process.
#[derive(Clone, Copy, Default, Debug)]
pub struct Size {
    pub looks: usize,
    pub connections: usize,
    /// Of its own, without the program, in KiB.
    pub memory: u64,
}

pub type Sizes = BTreeMap<String, Size>;

/// Until dropped.
pub async fn watch(fleet: Arc<Fleet>) {
    loop {
        for (pid, app) in fleet.workers.iter().filter_map(|seat| seat.process()) {
            // It may have ended just now.
            let (Some(connections), Some(memory)) = (connections(pid), memory(pid, "RssAnon"))
            else {
                continue;
            };
            let mut sizes = fleet.sizes.lock().unwrap();
            let size = sizes.entry(app).or_default();
            size.looks += 1;
            size.connections = size.connections.max(connections);
            size.memory = size.memory.max(memory);
        }
        sleep(PAUSE).await;
    }
}

/// Connections to the server: other sockets are the process's own affair.
fn connections(pid: u32) -> Option<usize> {
    let all = fs::read_to_string("/proc/net/tcp").ok()?;
    let all: HashSet<_> = all.lines().filter_map(established).collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let names = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let number = |name: &PathBuf| Some(name.to_str()?.strip_prefix("socket:[")?.to_owned());
    let numbers = names.filter_map(|name| number(&name));
    Some(numbers.filter(|number| all.contains(number.trim_end_matches(']'))).count())
}

/// The number of its socket: those that the server has closed are not counted.
fn established(line: &str) -> Option<&str> {
    let mut columns = line.split_whitespace();
    columns.nth(3).filter(|state| *state == "01")?;
    columns.nth(5)
}
