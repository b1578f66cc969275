// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux hosts in virtual time: two User-Mode Linux kernels, each with a network card that is
//! plugged into a port, and the commands that they run.
//!
//! A kernel in time travel computes in no time at all, and asks for every advance of its clock. So
//! what it sends, and when, depends on what comes in, on its settings and its seed, and on nothing
//! else. `make hosts` makes kernel and initramfs.

mod affinity;
mod agents;
mod at_end;
mod clock;
mod device;
mod host;
mod image;
mod machine;
mod setup;
mod sys;
mod tasks;
mod trace;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use at_end::Shell;
pub use host::Link;
pub use image::Image;
pub use setup::Network;
pub use tasks::{Kind, Limits, Task};
pub use trace::{Call, Noted, Trace};

use crate::agent::Session;
use crate::rnic::{Frame, Picoseconds};
use crate::traffic::CommandReport;
use crate::{Error, Port};
use affinity::Core;
use at_end::AtEnd;
use host::Host;
use machine::{Boot, Machine, Stop};
use tasks::{Done, REACTION, Tasks};

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Kernel and initramfs.
    pub image: Image,
    /// Its network card and cable.
    pub link: Link,
    /// Its addresses and settings.
    pub network: Network,
    /// Parts per billion by which its clock is fast.
    pub drift_ppb: i64,
    /// Wall clock time of its start, in nanoseconds since 1970.
    pub time_of_day: u64,
    /// What reading the clock costs a process.
    pub clock_read_ns: u64,
    /// Its memory.
    pub memory_mib: u32,
    /// Of its random numbers.
    pub seed: u64,
    /// Files that its commands find where they begin.
    pub files: Vec<PathBuf>,
    /// The program that sends RDMA messages.
    pub agent: Option<PathBuf>,
    /// How long it may compute, in wall time, while its clock stands still.
    pub patience: Duration,
    /// Whether it says at its end what its sockets, queues and counters are, see [`state`].
    pub shows_state: bool,
    /// What its kernel notes of itself, see [`Pair::noted`].
    pub trace: Vec<Trace>,
}

/// What a host's network card has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames for which the driver had no buffer.
    pub overruns: u64,
}

/// What Soft-RoCE counts.
pub const RDMA_COUNTERS: [&str; 15] = [
    "sent_pkts",
    "rcvd_pkts",
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "send_rnr_err",
    "rcvd_seq_err",
    "ack_deferred",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
    "link_downed",
    "rdma_sends",
    "rdma_recvs",
];

/// Two hosts and what they do.
pub struct Pair {
    hosts: [Host; 2],
    core: Core,
    /// The thread that advances the hosts computes where they do.
    entered: bool,
    /// They have come to their end.
    over: [bool; 2],
    at_end: [AtEnd; 2],
    tasks: Tasks,
    /// What the hosts' agents do, instead of tasks.
    session: Option<Session>,
    /// How far the hosts have come without the card.
    ahead: Option<Picoseconds>,
}

const SETUP: &str = "setup.sh";
const COUNTERS: &str = "rdma-counters";

fn index(port: Port) -> usize {
    match port {
        Port::A => 0,
        Port::B => 1,
    }
}

/// What lets time pass for programs that poll for RDMA, see hosts/poll.c.
const SLOW_POLL: &str = "/usr/lib/midwire-poll.so";

/// The directory of a host in that of the run, and the name of its kernel.
fn name(port: Port) -> &'static str {
    match port {
        Port::A => "host-a",
        Port::B => "host-b",
    }
}

/// The name of a command's files, without their ending.
fn task_file(directory: &Path, n: usize, on: Port) -> PathBuf {
    directory.join(name(on)).join(n.to_string())
}

/// Whether a run makes a file of this name in a host's directory.
pub fn is_own(name: &str) -> bool {
    let of_command = |(stem, ending): (&str, &str)| {
        let number = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
        (number || at_end::SCRIPTS.contains(&stem)) && ["sh", "stdout", "stderr"].contains(&ending)
    };
    let others = [SETUP, COUNTERS, machine::CONSOLE, machine::UML];
    name.split_once('.').is_some_and(of_command)
        || name == agents::STDERR
        || others.contains(&name)
        || machine::FILES.contains(&name)
        || trace::FILES.contains(&name)
}

/// What the host at a port of a run in this directory has shown of itself at its end, and what is
/// on its console.
pub fn state(directory: &Path, port: Port) -> std::io::Result<String> {
    let directory = directory.join(name(port));
    let shown = fs::read_to_string(directory.join(at_end::STATE).with_extension("stdout"))?;
    Ok(shown + &fs::read_to_string(directory.join(machine::CONSOLE))?)
}

impl Pair {
    /// Starts two hosts, with their directories in that of a run. They compute first when they are
    /// asked to advance.
    pub fn start(
        directory: &Path,
        configs: [Config; 2],
        tasks: Vec<Task>,
        limits: Limits,
    ) -> Result<Self, Error> {
        let addresses = configs.each_ref().map(|config| {
            let first = config.network.addresses.first();
            first
                .map(|cidr| cidr.address.to_string())
                .unwrap_or_default()
        });
        for (port, config) in Port::ALL.into_iter().zip(&configs) {
            write_files(&directory.join(name(port)), config)
                .map_err(Error::host(port, "cannot write its files"))?;
        }
        let [a, b] = addresses;
        let variables = [("MIDWIRE_A", a), ("MIDWIRE_B", b)];
        for (n, task) in tasks.iter().enumerate() {
            let mut variables = variables.to_vec();
            if configs[index(task.on)].network.rdma {
                variables.push(("LD_PRELOAD", SLOW_POLL.to_owned()));
            }
            let file = task_file(directory, n, task.on).with_extension("sh");
            fs::write(file, setup::command(&task.run, &variables))
                .map_err(Error::host(task.on, "cannot write its commands"))?;
        }
        let at_end = configs.each_ref().map(AtEnd::of);
        let [a, b] = configs;
        let core = Core::take().map_err(Error::host(Port::A, "cannot choose a core"))?;
        let start = |port, config| start(&directory.join(name(port)), port, config, &core);
        Ok(Self {
            hosts: [start(Port::A, a)?, start(Port::B, b)?],
            core,
            entered: false,
            over: [false; 2],
            at_end,
            tasks: Tasks::new(tasks, limits),
            session: None,
            ahead: None,
        })
    }

    /// Has the host at a port run what a shell asks for, at its end.
    pub fn set_shell(&mut self, port: Port, shell: Shell) {
        self.at_end[index(port)].shell = Some(shell);
    }

    /// Lets the hosts' clocks begin at this time, or go on from then when they have begun.
    pub fn begin(&mut self, origin: Picoseconds) {
        if let Some(ahead) = self.ahead {
            return self.go_on(origin.max(ahead));
        }
        self.hosts.iter_mut().for_each(|host| host.begin(origin));
        self.tasks.begin(origin);
    }

    /// When the host at `port` acts next if nothing comes in.
    pub fn next(&self, port: Port) -> Option<Picoseconds> {
        let next = self.hosts[index(port)].next().min(self.tasks.end);
        (!self.over[index(port)]).then_some(next)
    }

    /// Runs the host at `port` to just before `to`; adds what it sends, by the time that its first
    /// bit leaves. The thread that calls this first has to be one of the run's own: it stays on the
    /// core of the hosts.
    pub fn advance(
        &mut self,
        port: Port,
        to: Picoseconds,
        sent: &mut Vec<Frame>,
    ) -> Result<(), Error> {
        if self.over[index(port)] {
            return Ok(());
        }
        if !std::mem::replace(&mut self.entered, true) {
            // Elsewhere it is only slower.
            let _ = self.core.enter()();
        }
        let host = &mut self.hosts[index(port)];
        host.advance(to.min(self.tasks.end), sent)?;
        let mut orders = Vec::new();
        for (at, line) in std::mem::take(&mut host.news) {
            match &mut self.session {
                Some(session) if line.starts_with('{') => {
                    let told = session.hear(port, &line)?.into_iter();
                    orders.extend(told.map(|(on, text)| (at + REACTION, on, agents::line(&text))));
                }
                _ => {
                    let heard = self.tasks.hear(at, &line, &mut orders);
                    heard.map_err(|what| host.broken(what))?;
                }
            }
        }
        for (at, on, text) in orders {
            self.hosts[index(on)].order(at, &text);
        }
        if to >= self.tasks.end {
            self.over[index(port)] = true;
            let host = &mut self.hosts[index(port)];
            if self.tasks.started() {
                self.at_end[index(port)].carry_out(host, self.tasks.end)?;
            }
            host.end();
        }
        Ok(())
    }

    /// Takes a frame for the host at `port`, which arrives at this time.
    pub fn receive(&mut self, port: Port, at: Picoseconds, frame: Frame) {
        // A network card drops what has a wrong FCS.
        if !frame.bad && !self.over[index(port)] {
            self.hosts[index(port)].receive(at, frame.data);
        }
    }

    /// The cable at `port`.
    pub fn link(&self, port: Port) -> &Link {
        self.hosts[index(port)].link()
    }

    /// What the network card at `port` has counted.
    pub fn counters(&self, port: Port) -> Counters {
        let host = &self.hosts[index(port)];
        Counters {
            sent: host.sent,
            received: host.received,
            overruns: host.overruns,
        }
    }

    /// What Soft-RoCE of the host at `port` has counted in a run in this directory, by the names
    /// that it gives.
    pub fn rdma_counters(directory: &Path, port: Port) -> BTreeMap<String, u64> {
        let text = fs::read_to_string(directory.join(name(port)).join(COUNTERS));
        let counter = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.unwrap_or_default()
            .lines()
            .filter_map(counter)
            .collect()
    }

    /// What became of each command of a run in this directory; nothing of those that did not
    /// begin.
    pub fn reports(&self, directory: &Path) -> Vec<Option<CommandReport>> {
        let report = |(n, (task, done)): (usize, (&Task, Option<Done>))| {
            let file = task_file(directory, n, task.on);
            Some(CommandReport {
                on: Some(task.on),
                run: task.run.clone(),
                outcome: done?.outcome,
                duration_ns: done?.duration / 1000,
                stdout: file.with_extension("stdout"),
                stderr: file.with_extension("stderr"),
            })
        };
        self.tasks.done().enumerate().map(report).collect()
    }

    /// What the kernel of the host at `port` of a run in this directory has noted of itself; nothing
    /// when it was not to, or did not come to its end.
    pub fn noted(&self, directory: &Path, port: Port) -> Result<Option<Noted>, Error> {
        if self.at_end[index(port)].trace.is_none() || !self.over[index(port)] || !self.started() {
            return Ok(None);
        }
        let directory = directory.join(name(port));
        let card_time = |ns| self.hosts[index(port)].card_time(ns);
        let noted = trace::read(&directory, port.into(), card_time);
        noted
            .map(Some)
            .map_err(Error::host(port, "cannot read what its kernel has noted"))
    }

    /// Whether both hosts came up.
    pub fn started(&self) -> bool {
        self.tasks.started()
    }
}

/// The directory of a host, with all that it finds there.
fn write_files(directory: &Path, config: &Config) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    for file in &config.files {
        let name = file
            .file_name()
            .ok_or(std::io::ErrorKind::InvalidFilename)?;
        fs::copy(file, directory.join(name))?;
    }
    if let Some(agent) = &config.agent {
        fs::copy(agent, directory.join(agents::AGENT))?;
    }
    let settings = trace::settings(&config.trace, config.memory_mib);
    fs::write(directory.join(trace::SETTINGS), settings)?;
    fs::write(directory.join(SETUP), config.network.script())
}

fn start(directory: &Path, port: Port, config: Config, core: &Core) -> Result<Host, Error> {
    let boot = Boot {
        image: &config.image,
        name: name(port),
        memory_mib: config.memory_mib,
        seed: config.seed,
        clock_read_ns: config.clock_read_ns,
        core,
    };
    let failed = || Error::host(port, "cannot start its kernel");
    let machine = Machine::start(directory, &boot).map_err(failed())?;
    Host::new(port, machine, &config).map_err(failed())
}

/// A host of a pair, to be plugged into a port.
#[derive(Clone)]
pub struct Plug {
    pair: Arc<Mutex<Pair>>,
    stops: [Stop; 2],
    port: Port,
}

impl fmt::Debug for Plug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux host at port {}", self.port)
    }
}

impl Plug {
    /// Both hosts of a pair.
    pub fn both(pair: Pair) -> [Plug; 2] {
        let stops = pair.hosts.each_ref().map(Host::stop);
        let pair = Arc::new(Mutex::new(pair));
        Port::ALL.map(|port| Plug {
            pair: Arc::clone(&pair),
            stops: stops.clone(),
            port,
        })
    }

    /// The pair.
    pub fn pair(&self) -> MutexGuard<'_, Pair> {
        // Nothing is half done between two calls.
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port that it is for.
    pub fn port(&self) -> Port {
        self.port
    }

    /// Ends both hosts, from any thread, so that nobody waits for them any more.
    pub fn end(&self) {
        self.stops.iter().for_each(Stop::end);
    }
}
