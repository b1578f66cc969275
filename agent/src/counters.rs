// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a NIC counts: the counters of its ports, and what ethtool says of its network interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// All counters of an RDMA device by name. Where several name one, that of the device counts, and
/// those of several ports are added. The kernel tells what it read not longer ago than a lifespan,
/// so this waits for as long.
pub fn read(device: &str) -> BTreeMap<String, u64> {
    let ports = Path::new("/sys/class/infiniband")
        .join(device)
        .join("ports");
    let lifespan = |port: &PathBuf| text(&port.join("hw_counters/lifespan"))?.parse().ok();
    let lifespan = entries(&ports).iter().filter_map(lifespan).max();
    thread::sleep(Duration::from_millis(lifespan.unwrap_or(0)));
    let mut interfaces: Vec<String> = Vec::new();
    let mut own = BTreeMap::new();
    for port in entries(&ports) {
        for counter in ["counters", "hw_counters"]
            .into_iter()
            .flat_map(|d| entries(&port.join(d)))
        {
            if counter.ends_with("lifespan") {
                continue;
            }
            let name = counter.file_name().unwrap_or_default().to_string_lossy();
            // Not all of them are numbers, and some can't be read.
            if let Some(value) = text(&counter).and_then(|t| t.parse::<u64>().ok()) {
                *own.entry(name.into_owned()).or_default() += value;
            }
        }
        interfaces.extend(
            entries(&port.join("gid_attrs/ndevs"))
                .iter()
                .filter_map(|p| text(p)),
        );
    }
    interfaces.sort();
    interfaces.dedup();
    let mut all: BTreeMap<_, _> = interfaces.iter().flat_map(|name| ethtool(name)).collect();
    all.extend(own);
    all
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Statistics of a network interface; none without ethtool.
fn ethtool(interface: &str) -> Vec<(String, u64)> {
    let output = Command::new("ethtool").args(["-S", interface]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let counter = |line: &str| {
        let (name, value) = line.trim().rsplit_once(": ")?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(counter)
        .collect()
}
