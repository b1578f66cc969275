// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux hosts in virtual time, as a plan has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use midwire_endpoints::agent;
use midwire_endpoints::linux::{Config, Image, Link, Network, Trace, is_own};
use midwire_endpoints::rnic::NANOSECOND;
use midwire_endpoints::{Cidr, Mac, Neighbours, Port, Setting, TapHost, one_or_several};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, Size};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// A Linux kernel in virtual time, with its network card plugged into the port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxEndpoint {
    /// One or several addresses; the first is the host's name to commands.
    #[serde(with = "one_or_several")]
    #[schemars(schema_with = "one_or_several::schema")]
    pub address: Vec<Cidr>,
    /// Longest IP packet. Default 1500.
    #[serde(default = "default_mtu")]
    #[schemars(range(min = 68, max = 9000))]
    pub mtu: u32,
    /// Settings of the kernel, by their full names (`net.ipv4.tcp_ecn`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, Setting>,
    /// The default of every connection of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Address of the interface; by default one derived from the plan's name and the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// It has Soft-RoCE, as device `rxe0`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rdma: bool,
    /// How it knows the other host.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// Rate of the network card in Mbit/s; that of the card's line without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub rate_mbps: Option<u32>,
    /// What a bit takes from the host to the card. Default 1us.
    #[serde(default = "default_delay")]
    pub delay: Duration,
    /// How long a received frame waits for others before the kernel is interrupted. Default 0ns.
    #[serde(default = "at_once")]
    pub coalescing: Duration,
    /// Its clock.
    #[serde(default)]
    pub clock: LinuxClock,
    /// Its memory. Default 256MiB.
    #[serde(default = "default_memory")]
    pub memory: Size,
    /// Seed of its random numbers; that of the run without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What its kernel notes of itself; `midwire export` and the report show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Trace>,
    /// Files that its commands find in their directory; relative to the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// The program that sends the plan's `rdma` traffic; relative to the plan. By default the one
    /// that `make agent` has made, beside `midwire`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<PathBuf>,
    /// The kernel: User-Mode Linux with time travel; relative to the plan. By default the one that
    /// `make hosts` has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// The initramfs, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initramfs: Option<PathBuf>,
    /// How long it may compute, in wall time, while its clock stands still. Default 30s.
    #[serde(default = "default_patience")]
    pub patience: Duration,
}

/// The clock of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinuxClock {
    /// How much later than the card's it is at the start. Default 0ns.
    pub offset: Duration,
    /// Parts per billion by which it is fast; below 0: slow. Default 0.
    #[schemars(range(min = -100_000_000, max = 100_000_000))]
    pub drift_ppb: i64,
    /// What reading it costs a process. Default 256ns.
    pub read: Duration,
}

impl Default for LinuxClock {
    fn default() -> Self {
        Self {
            offset: Duration(0),
            drift_ppb: 0,
            read: Duration(256),
        }
    }
}

fn default_mtu() -> u32 {
    1500
}

fn default_delay() -> Duration {
    Duration(1_000)
}

fn at_once() -> Duration {
    Duration(0)
}

fn default_memory() -> Size {
    Size(256 * MIB)
}

fn default_patience() -> Duration {
    Duration(30_000_000_000)
}

/// Wall clock time at which hosts start, 2024-01-01: the same in every run.
const TIME_OF_DAY: u64 = 1_704_067_200_000_000_000;

/// Where a host is.
#[derive(Debug, Clone, Copy)]
pub struct LinuxPlace<'a> {
    /// Name of the plan.
    pub name: &'a str,
    /// Its directory.
    pub base: &'a Path,
    /// What a byte takes on the card's line, in picoseconds.
    pub byte_ps: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Card time at which it is stopped to be looked at.
    pub until_ns: Option<u64>,
    /// It sends RDMA messages by an agent.
    pub sends_rdma: bool,
}

impl LinuxEndpoint {
    /// What it has in common with a host in a network namespace.
    pub fn host(&self) -> TapHost {
        let mut host = TapHost::new(self.address[0]);
        host.address.clone_from(&self.address);
        host.mtu = self.mtu;
        host.sysctls.clone_from(&self.sysctls);
        host.congestion_control.clone_from(&self.congestion_control);
        host.mac = self.mac;
        host.neighbours = self.neighbours;
        host
    }

    fn mac(&self, name: &str, port: Port) -> Mac {
        self.mac.unwrap_or_else(|| Mac::derived(name, port))
    }

    /// The host at a port, whose neighbour is `other`.
    pub fn config(
        &self,
        port: Port,
        other: &LinuxEndpoint,
        place: LinuxPlace<'_>,
    ) -> Result<Config, midwire_endpoints::Error> {
        let file = |path: &PathBuf| place.base.join(path);
        let [kernel, initramfs] = [&self.kernel, &self.initramfs].map(|p| p.as_ref().map(file));
        let neighbour = || (other.mac(place.name, port.other()), other.address.clone());
        // bit/s and ps: 8 × 10¹² / 10⁶
        let byte_time = |mbps: u32| 8_000_000 / u64::from(mbps.max(1));
        let agent = || agent::program(self.agent.as_ref().map(file).as_deref());
        Ok(Config {
            agent: place.sends_rdma.then(agent).transpose()?,
            image: Image::find(kernel.as_deref(), initramfs.as_deref())?,
            link: Link {
                mac: self.mac(place.name, port).0,
                mtu: u16::try_from(self.mtu).unwrap_or(u16::MAX),
                byte_time: self.rate_mbps.map_or(place.byte_ps, byte_time),
                delay: self.delay.as_nanos() * NANOSECOND,
                coalescing: self.coalescing.as_nanos() * NANOSECOND,
            },
            network: Network {
                addresses: self.address.clone(),
                neighbour: (self.neighbours == Neighbours::Static).then(neighbour),
                sysctls: self.sysctls.clone(),
                congestion_control: self.congestion_control.clone(),
                rdma: self.rdma,
            },
            drift_ppb: self.clock.drift_ppb,
            time_of_day: TIME_OF_DAY + self.clock.offset.as_nanos(),
            clock_read_ns: self.clock.read.as_nanos(),
            memory_mib: u32::try_from(self.memory.0 / MIB).unwrap_or(u32::MAX),
            seed: self.seed.unwrap_or(place.seed),
            files: self.files.iter().map(file).collect(),
            patience: self.patience.to_std(),
            shows_state: place.until_ns.is_some(),
            trace: self.trace.clone(),
        })
    }

    /// What types can't say: the key and what is wrong there.
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let mut within = |key, value: Duration, least, most| {
            if !(least..=most).contains(&value.0) {
                let (least, most) = (Duration(least), Duration(most));
                faults.push((key, format!("{key} {value}: expected {least} to {most}")));
            }
        };
        within("delay", self.delay, 1, SECOND);
        within("coalescing", self.coalescing, 0, SECOND);
        within("patience", self.patience, SECOND / 10, 86_400 * SECOND);
        within("clock", self.clock.read, 1, SECOND / 1000);
        within("clock", self.clock.offset, 0, 31_536_000 * SECOND);
        if self.mtu > 9000 {
            faults.push(("mtu", format!("mtu {}: expected at most 9000", self.mtu)));
        }
        if self.clock.drift_ppb.abs() > 100_000_000 {
            let expected = "expected -100000000 to 100000000";
            let message = format!("drift_ppb {}: {expected}", self.clock.drift_ppb);
            faults.push(("clock", message));
        }
        if !(128 * MIB..=64 * 1024 * MIB).contains(&self.memory.0) {
            let message = format!("memory {}: expected 128MiB to 64GiB", self.memory);
            faults.push(("memory", message));
        }
        if self
            .rate_mbps
            .is_some_and(|rate| !(1..=100_000).contains(&rate))
        {
            faults.push(("rate_mbps", "rate_mbps: expected 1 to 100000".to_owned()));
        }
        for name in self.trace.iter().filter_map(Trace::function) {
            let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
            if name.is_empty() || !name.bytes().all(sound) {
                let message = format!("trace: {name:?} is no function of the kernel");
                faults.push(("trace", message));
            }
        }
        let mut names: Vec<_> = self.files.iter().map(|file| file.file_name()).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        if names.contains(&None) || names.len() != count {
            let message = "files: expected paths that end in different names".to_owned();
            faults.push(("files", message));
        }
        let text = names.iter().filter_map(|name| name.as_ref()?.to_str());
        for name in text.filter(|name| is_own(name)) {
            let message = format!("files: {name} is a file of the run itself");
            faults.push(("files", message));
        }
        faults
    }
}
