// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries a plan out: hosts, card, events, capture, traffic, silence, and what all of them say.
//!
//! Whatever happens, a directory of the run is left that says so, and a capture that was begun
//! is ended, so that what is in it can be read. No step waits without a limit.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use midwire_driver as driver;
use midwire_endpoints as endpoints;
use midwire_endpoints::agent::{Agents, Flow, Session};
use midwire_endpoints::rnic::RdmaNics;
use midwire_endpoints::{linux, rnic, traffic};

use crate::bench::{Capturing, CardProvider, CardRequest, Device, Feed, PortFeed, Provided};
use crate::compile;
use crate::inputs;
use crate::inside;
use crate::linux_run;
use crate::plan::{
    self, Endpoint, LinuxEndpoint, LinuxPlace, Pace, PcapEndpoint, Plan, RnicEndpoint, RunLength,
    Traffic,
};
use crate::rdma_run;
use crate::run_file::{
    CaptureRecord, CardRecord, ConnectionRecord, Findings, PlanRecord, Recorded, Rerun, RunFile,
    TrafficRecord, files,
};
use crate::text::{Utc, time};
use crate::{Error, analyze, run_file, verdict};

/// Where runs go unless told otherwise.
pub const RUNS: &str = "runs";

/// How often progress is told and interruption looked for.
const TICK: Duration = Duration::from_millis(50);
/// Longest wait for silence, beyond what the plan asks for.
const SETTLE: Duration = Duration::from_secs(10);

/// How a run is carried out.
pub struct Options<'a> {
    /// File of the plan, for the records; its directory is where its files are looked for.
    pub plan_file: PathBuf,
    /// Its text.
    pub plan_text: String,
    /// Directory of the run; one with name and time under [`RUNS`] without it.
    pub out: Option<PathBuf>,
    /// Seed of everything random.
    pub seed: u64,
    /// Which of several runs, from 1, and of how many.
    pub repeat: (u32, u32),
    /// The run that it repeats.
    pub rerun: Option<Again>,
    /// Hears how the run goes.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Set to break the run off; it ends in order, with what was captured kept. A run that lasts
    /// until then comes to its verdict.
    pub interrupt: &'a AtomicBool,
}

/// What is different in a run that repeats another one.
pub struct Again {
    /// The other run, and where this one ends.
    pub rerun: Rerun,
    /// What is to run on a Linux host at its end.
    pub shell: Option<(endpoints::Port, linux::Shell)>,
}

/// How a run goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A step begins.
    Step(&'static str),
    /// Records and bytes in the capture so far, and records lost.
    Capture {
        /// Records.
        records: u64,
        /// Bytes in the file.
        bytes: u64,
        /// Records lost.
        lost: u64,
    },
}

/// A run that is over.
#[derive(Debug)]
pub struct RunOutcome {
    /// Its directory.
    pub directory: PathBuf,
    /// What `run.json` holds.
    pub run: RunFile,
}

/// Carries out a plan. An error here is a run that did not even begin.
pub fn run(
    plan: &Plan,
    options: Options<'_>,
    provider: &mut dyn CardProvider,
) -> Result<RunOutcome, Error> {
    let started = SystemTime::now();
    let base = options.plan_file.parent().unwrap_or(Path::new(""));
    for (_, endpoint) in plan.endpoints.both() {
        if let Endpoint::Pcap(PcapEndpoint {
            input: Some(input), ..
        }) = endpoint
        {
            let path = base.join(input);
            fs::File::open(&path).map_err(|source| Error::Input { path, source })?;
        }
    }
    let (rerun, shell) = options.rerun.map(|a| (a.rerun, a.shell)).unzip();
    let directory = make_directory(plan, options.out.as_deref(), started)?;
    let mut recorded = Recorded {
        midwire: env!("CARGO_PKG_VERSION").to_owned(),
        seed: options.seed,
        repeat: options.repeat,
        rerun,
        inputs: Vec::new(),
        started: Utc(started).text(),
        ended: String::new(),
        host: host(),
        plan: PlanRecord {
            file: options.plan_file.display().to_string(),
            text: options.plan_text,
            parsed: plan.clone(),
        },
        card: None,
        declared: Vec::new(),
        positions: Vec::new(),
        rules: Vec::new(),
        capture: CaptureRecord::default(),
        counters: None,
        connections: Vec::new(),
        traffic: Vec::new(),
        hosts: None,
        inside: Vec::new(),
        nics: Vec::new(),
        interrupted: false,
        error: None,
    };
    let mut stage = Stage {
        plan,
        base,
        directory: &directory,
        seed: options.seed,
        interrupt: options.interrupt,
        progress: options.progress,
        recorded: &mut recorded,
        shell: shell.flatten(),
        lasted: false,
    };
    let result = stage.carry_out(provider);
    let interrupted = stage.interrupted();
    recorded.error = result.err();
    recorded.interrupted = interrupted;
    recorded.ended = Utc(SystemTime::now()).text();
    let run = analyze::conclude(&directory, recorded)?;
    Ok(RunOutcome { directory, run })
}

/// A new directory; never one that holds another run.
fn make_directory(plan: &Plan, out: Option<&Path>, started: SystemTime) -> Result<PathBuf, Error> {
    if let Some(out) = out {
        return match fs::read_dir(out) {
            Ok(mut entries) => match entries.next() {
                None => Ok(out.to_owned()),
                Some(_) => Err(Error::NotEmpty(out.to_owned())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(out).map_err(Error::file("create", out))?;
                Ok(out.to_owned())
            }
            Err(error) => Err(Error::file("use", out)(error)),
        };
    }
    let runs = Path::new(RUNS);
    fs::create_dir_all(runs).map_err(Error::file("create", runs))?;
    let name = format!("{}-{}", plan.name, Utc(started).name());
    let mut directory = runs.join(&name);
    for n in 2.. {
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                directory = runs.join(format!("{name}-{n}"));
            }
            result => {
                result.map_err(Error::file("create", &directory))?;
                break;
            }
        }
    }
    Ok(directory)
}

/// Kernel and machine.
fn host() -> String {
    let read = |name| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!(
        "{} {} {}",
        read("ostype"),
        read("osrelease"),
        std::env::consts::ARCH
    )
}

/// What is plugged into the ports, and the hold on it.
#[derive(Default)]
struct Plugged {
    hosts: Option<endpoints::Hosts>,
    /// Either of two model NICs.
    nics: Option<rnic::Plug>,
    /// Either of two Linux hosts in virtual time.
    linux: Option<linux::Plug>,
    /// The agents of real hosts.
    agents: Option<Agents>,
    /// The connections, when it is known beforehand which there are.
    flows: Vec<Flow>,
}

/// A step of a run that could not be done, as a sentence.
pub(crate) type Step<T> = Result<T, String>;

pub(crate) fn said<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

struct Stage<'a> {
    plan: &'a Plan,
    base: &'a Path,
    directory: &'a Path,
    seed: u64,
    interrupt: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    recorded: &'a mut Recorded,
    shell: Option<(endpoints::Port, linux::Shell)>,
    /// An interruption has ended a run that lasts until then.
    lasted: bool,
}

impl Stage<'_> {
    fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) && !self.lasted
    }

    fn step(&mut self, name: &'static str) {
        (self.progress)(&Progress::Step(name));
    }

    fn carry_out(&mut self, provider: &mut dyn CardProvider) -> Step<()> {
        self.step("setting up hosts");
        let (mut plugged, ports) = self.endpoints()?;
        if self.plan.time() == plan::CardTime::Virtual {
            self.recorded.inputs = inputs::record(self.plan, self.base).map_err(said)?;
        }
        if self.interrupted() {
            return Ok(());
        }
        self.step("starting the card");
        let Provided { device, mut feed } = provider.provide(CardRequest {
            width: self.plan.width(),
            time: self.plan.time(),
            ports,
            directory: self.directory.to_owned(),
        })?;
        let info = device.info();
        self.recorded.card = Some(CardRecord {
            place: info.name.clone(),
            parameters: serde_json::to_value(&info).map_err(said)?,
        });
        if self.interrupted() {
            return Ok(());
        }

        self.step("loading events");
        let compiled = compile::compile(self.plan, self.seed).of(self.plan, &plugged.flows);
        let loaded = device.load(&compiled.program).map_err(said)?;
        (self.recorded.declared).clone_from(&compiled.program.declared);
        self.recorded.positions = compiled.records(&loaded.slots);
        self.recorded.rules = compiled.rule_records(&loaded.rules);
        self.leave_word()?;

        let mut config = driver::CaptureConfig::new(self.directory.join(files::CAPTURE));
        config.snapshot_bytes = snapshot_bytes(self.plan);
        config.block_bytes = config
            .block_bytes
            .max((2 * config.snapshot_bytes).next_power_of_two());
        // Files of a card that is served separately begin with the capture: their connections have
        // to be learnt from the first frame on.
        if self.plan.is_external() {
            device.track(true).map_err(said)?;
        }
        let capture = device.start_capture(config).map_err(said)?;

        // From here on the capture is ended in order, whatever happens.
        let result = self.with_capture(&*device, &*capture, &mut plugged, &mut *feed);
        if let Some(linux) = &plugged.linux {
            // Whoever still waits for them waits no longer.
            linux.end();
        }
        let _ = device.track(false);
        self.step("ending the capture");
        match capture.stop() {
            Ok(summary) => {
                self.recorded.capture = CaptureRecord {
                    blocks: summary.blocks,
                    records: summary.records,
                    bytes: summary.bytes,
                    error: None,
                }
            }
            Err(error) => self.recorded.capture.error = Some(error.to_string()),
        }
        let mut read = self.read_card(&*device, &loaded);
        read = read.and(self.read_endpoints(&plugged));
        let finished = feed.finish();
        result.and(read).and(finished)
    }

    /// What the endpoints say of their traffic and of themselves.
    fn read_endpoints(&mut self, plugged: &Plugged) -> Step<()> {
        if let Some(nics) = &plugged.nics {
            self.read_nics(&*nics.bed());
        }
        if let Some(agents) = &plugged.agents {
            self.read_nics(agents.nics());
        }
        if let Some(hosts) = &plugged.hosts {
            let link = |port| hosts.at(port).counters().ok();
            self.recorded.hosts = serde_json::to_value(endpoints::Port::ALL.map(link)).ok();
        }
        let mut read = Ok(());
        if let Some(linux) = &plugged.linux {
            let pair = linux.pair();
            let records = linux_run::records(self.plan, &pair, self.directory);
            read = read.and(records.map(|records| self.recorded.traffic = records));
            let noted = inside::write(&pair, &self.recorded.connections, self.directory);
            read = read.and(noted.map(|records| self.recorded.inside = records));
            let counters = endpoints::Port::ALL.map(|p| pair.counters(p));
            self.recorded.hosts = serde_json::to_value(counters).ok();
            self.recorded.nics = linux_run::nics(self.plan, &pair, self.directory);
        }
        read
    }

    /// Writes `run.json` as it is for a run that is killed from here on, so that what it captured
    /// can be read.
    fn leave_word(&self) -> Step<()> {
        let recorded = Recorded {
            error: Some("the run did not come to its end".to_owned()),
            ..self.recorded.clone()
        };
        let findings = Findings::default();
        let run = RunFile {
            version: run_file::VERSION,
            name: self.plan.name.clone(),
            verdict: verdict::judge(&recorded, &findings),
            findings,
            recorded,
        };
        run.write(self.directory).map_err(said)?;
        Ok(())
    }

    /// Makes hosts or NICs when the plan has them.
    fn endpoints(&mut self) -> Step<(Plugged, [PortFeed; 2])> {
        let mut plugged = Plugged::default();
        let ports = match (&self.plan.endpoints.a, &self.plan.endpoints.b) {
            (Endpoint::Tap(a), Endpoint::Tap(b)) => {
                let (hosts, ports) = endpoints::Hosts::new(&self.plan.name, a, b).map_err(said)?;
                plugged.hosts = Some(hosts);
                ports.map(PortFeed::Tap)
            }
            (Endpoint::Rnic(a), Endpoint::Rnic(b)) => {
                let bed = self.testbed(a, b);
                if self.plan.runs_together() {
                    plugged.flows = bed.flows();
                }
                let ports = rnic::Plug::both(bed);
                plugged.nics = Some(ports[0].clone());
                ports.map(PortFeed::Rnic)
            }
            (Endpoint::Linux(a), Endpoint::Linux(b)) => {
                let mut pair = self.linux([a, b])?;
                if let Some((port, shell)) = self.shell.take() {
                    pair.set_shell(port, shell);
                }
                plugged.flows = pair.session().map(Session::flows).unwrap_or_default();
                let ports = linux::Plug::both(pair);
                plugged.linux = Some(ports[0].clone());
                ports.map(PortFeed::Linux)
            }
            (Endpoint::Agent(a), Endpoint::Agent(b)) => {
                let mut agents = rdma_run::agents(self.plan, [a, b], self.seed, self.directory)?;
                while !self.interrupted() && !agents.step(TICK).map_err(said)? {}
                plugged.flows = agents.flows();
                plugged.agents = Some(agents);
                [PortFeed::External, PortFeed::External]
            }
            (a, b) => [self.feed(a), self.feed(b)],
        };
        Ok((plugged, ports))
    }

    fn testbed(&self, a: &RnicEndpoint, b: &RnicEndpoint) -> rnic::Testbed {
        let config =
            |nic: &RnicEndpoint, port| nic.config(&self.plan.name, port, self.plan.byte_ps());
        let configs = [config(a, endpoints::Port::A), config(b, endpoints::Port::B)];
        rnic::Testbed::new(configs, &self.plan.transfers(), self.seed)
    }

    fn linux(&self, hosts: [&LinuxEndpoint; 2]) -> Step<linux::Pair> {
        let place = LinuxPlace {
            name: &self.plan.name,
            base: self.base,
            byte_ps: self.plan.byte_ps(),
            seed: self.seed,
            sends_rdma: self.plan.sends_rdma(),
            until_ns: self
                .recorded
                .rerun
                .as_ref()
                .and_then(|rerun| rerun.until_ns),
        };
        linux_run::start(self.plan, hosts, place, self.directory)
    }

    /// What the NICs say of their traffic and of themselves.
    fn read_nics(&mut self, nics: &dyn RdmaNics) {
        self.recorded.traffic = rdma_run::records(self.plan, nics);
        self.recorded.nics = rdma_run::counters(nics);
    }

    /// What is plugged into a port without a host.
    fn feed(&self, endpoint: &Endpoint) -> PortFeed {
        let silent = PcapEndpoint::default();
        let pcap = match endpoint {
            Endpoint::External => return PortFeed::External,
            Endpoint::Pcap(pcap) => pcap,
            Endpoint::Tap(_) | Endpoint::Linux(_) | Endpoint::Rnic(_) | Endpoint::Agent(_) => {
                &silent
            }
        };
        PortFeed::Pcap {
            input: pcap.input.as_ref().map(|input| self.base.join(input)),
            line_rate: pcap.pace == Pace::LineRate,
            output: pcap
                .output
                .as_ref()
                .map(|output| self.directory.join(output)),
        }
    }

    fn with_capture(
        &mut self,
        device: &dyn Device,
        capture: &dyn Capturing,
        plugged: &mut Plugged,
        feed: &mut dyn Feed,
    ) -> Step<()> {
        if !self.plan.is_external() {
            device.track(true).map_err(said)?;
        }
        self.step("running traffic");
        match (&self.plan.endpoints.a, &mut plugged.agents) {
            (_, Some(agents)) => self.converse(agents, capture)?,
            (Endpoint::Linux(_) | Endpoint::Pcap(_) | Endpoint::Rnic(_), _) => {
                self.play(capture, feed)?;
            }
            _ if self.plan.traffic.is_empty() => self.last(capture),
            _ => self.traffic(plugged.hosts.as_ref(), capture)?,
        }
        self.step("waiting for silence");
        self.settle(device, capture)
    }

    /// Lets the frames of files, model NICs or Linux hosts come in, to the last. For Linux hosts
    /// the limit is one of virtual time, which they keep themselves.
    fn play(&mut self, capture: &dyn Capturing, feed: &mut dyn Feed) -> Step<()> {
        let deadline = Instant::now() + self.plan.timeouts.traffic.to_std();
        feed.play()?;
        while !self.interrupted() && !feed.played()? {
            let endless = matches!(self.plan.endpoints.a, Endpoint::Linux(_));
            if Instant::now() >= deadline && !endless {
                return Err(format!(
                    "the frames took longer than {} to come in, see timeouts: traffic",
                    self.plan.timeouts.traffic
                ));
            }
            if self.tell(capture) {
                break;
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Has the agents of real hosts send their messages.
    fn converse(&mut self, agents: &mut Agents, capture: &dyn Capturing) -> Step<()> {
        agents.go_on(self.plan.timeouts.traffic.to_std());
        while !self.interrupted() && !agents.step(TICK).map_err(said)? {
            if self.tell(capture) {
                break;
            }
        }
        Ok(())
    }

    /// Looks on at external endpoints for as long as the plan says.
    fn last(&mut self, capture: &dyn Capturing) {
        let end = match self.plan.duration {
            Some(RunLength::Of(duration)) => Instant::now().checked_add(duration.to_std()),
            Some(RunLength::UntilInterrupted) | None => None,
        };
        while !self.tell(capture) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            if self.interrupted() {
                self.lasted = end.is_none();
                break;
            }
            thread::sleep(left.map_or(TICK, |left| left.min(TICK)));
        }
    }

    /// Tells how far the capture is; true when it has ended by itself.
    fn tell(&mut self, capture: &dyn Capturing) -> bool {
        let driver::CaptureProgress {
            records,
            bytes,
            lost,
            ended,
            ..
        } = capture.progress();
        (self.progress)(&Progress::Capture {
            records,
            bytes,
            lost,
        });
        ended
    }

    /// Runs the plan's traffic on a thread of its own, and looks after capture and user meanwhile.
    fn traffic(&mut self, hosts: Option<&endpoints::Hosts>, capture: &dyn Capturing) -> Step<()> {
        let deadline = Instant::now() + self.plan.timeouts.traffic.to_std();
        let cancel = AtomicBool::new(false);
        let player = Player {
            plan: self.plan,
            hosts,
            directory: self.directory,
            seed: self.seed,
            deadline,
            cancel: &cancel,
        };
        let records = thread::scope(|scope| {
            let worker = scope.spawn(|| player.play());
            while !worker.is_finished() {
                if self.interrupted() || self.tell(capture) {
                    cancel.store(true, Ordering::Relaxed);
                }
                thread::sleep(TICK);
            }
            worker
                .join()
                .unwrap_or_else(|_| Err("the traffic's thread broke down".to_owned()))
        })?;
        self.recorded.traffic = records;
        Ok(())
    }

    /// Waits until no port has seen a frame for as long as the plan asks; frames that events
    /// hold back, and their copies, have left by then.
    fn settle(&mut self, device: &dyn Device, capture: &dyn Capturing) -> Step<()> {
        let plan = &self.plan;
        let held = |event: &plan::Event| {
            let action = &event.action;
            let delay = action.delay.map_or(Duration::ZERO, |delay| delay.to_std());
            let turn = match action.reorder {
                Some(_) => plan.timeouts.reorder.to_std(),
                None => Duration::ZERO,
            };
            let copies = action.duplicate.map_or(Duration::ZERO, |duplicate| {
                duplicate.gap.to_std() * duplicate.copies
            });
            delay.max(turn) + copies
        };
        let held = plan.events.iter().map(held).max().unwrap_or_default();
        let quiet = plan.timeouts.quiet.to_std() + held;
        // Virtual time has no silence to wait for: what is played is over.
        if self.plan.time() == plan::CardTime::Virtual {
            return Ok(());
        }
        // Of external endpoints without traffic of the plan no silence can be hoped for.
        let patience = if self.plan.duration.is_some() {
            Duration::ZERO
        } else {
            SETTLE
        };
        let limit = Instant::now() + quiet + patience;
        let frames = || -> Step<[u64; 4]> {
            let [a, b] = device.counters().map_err(said)?.ports;
            Ok([a.rx_frames, b.rx_frames, a.tx_frames, b.tx_frames])
        };
        let mut last = frames()?;
        let mut since = Instant::now();
        while since.elapsed() < quiet && Instant::now() < limit && !self.interrupted() {
            if self.tell(capture) {
                break;
            }
            thread::sleep(TICK.min(quiet));
            let now = frames()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn read_card(&mut self, device: &dyn Device, loaded: &driver::Loaded) -> Step<()> {
        for (position, slot) in self.recorded.positions.iter_mut().zip(&loaded.slots) {
            let state = device.slot_state(*slot).map_err(said)?;
            position.seen = state.seen.into();
            position.fired = state.fired.into();
            position.last_packet_id = state.last_packet_id;
        }
        for (rule, slot) in self.recorded.rules.iter_mut().zip(&loaded.rules) {
            let state = device.slot_state(*slot).map_err(said)?;
            rule.seen = state.seen.into();
            rule.fired = state.fired.into();
            rule.last_packet_id = state.last_packet_id;
        }
        self.recorded.connections = device
            .connections()
            .map_err(said)?
            .iter()
            .map(connection)
            .collect();
        let counters = device.counters().map_err(said)?;
        self.recorded.counters = Some(serde_json::to_value(counters).map_err(said)?);
        Ok(())
    }
}

/// Whole records of 32 bytes.
fn snapshot_bytes(plan: &Plan) -> u32 {
    let bytes = plan.capture.snapshot.0.min(10_240);
    u32::try_from(bytes.next_multiple_of(32)).unwrap_or(0)
}

fn connection(connection: &driver::Connection) -> ConnectionRecord {
    let transport = match connection.transport {
        driver::Transport::Tcp => "TCP",
        driver::Transport::Roce => "RoCE",
    };
    let end = |address: std::net::IpAddr, port: u32| match connection.transport {
        driver::Transport::Tcp => {
            std::net::SocketAddr::new(address, port.try_into().unwrap_or(0)).to_string()
        }
        driver::Transport::Roce if port == 0 => address.to_string(),
        driver::Transport::Roce => format!("{address} QP {port}"),
    };
    ConnectionRecord {
        number: connection.number.into(),
        text: format!(
            "{transport} {} > {}",
            end(connection.source, connection.source_port.into()),
            end(connection.destination, connection.destination_port)
        ),
        opener: connection.opener_lane,
    }
}

/// Plays the traffic of a plan, one entry after the other.
struct Player<'a> {
    plan: &'a Plan,
    hosts: Option<&'a endpoints::Hosts>,
    directory: &'a Path,
    seed: u64,
    deadline: Instant,
    cancel: &'a AtomicBool,
}

impl Player<'_> {
    fn play(&self) -> Step<Vec<TrafficRecord>> {
        let mut records = Vec::new();
        let mut background = Vec::new();
        for (number, entry) in (1..).zip(&self.plan.traffic) {
            if self.cancel.load(Ordering::Relaxed) {
                break;
            }
            match entry {
                Traffic::Tcp(tcp) => records.push(self.tcp(number, tcp)?),
                Traffic::Rdma(_) => return Err("there are no NICs for RDMA".to_owned()),
                Traffic::Command(command) => {
                    let runner = traffic::CommandTraffic {
                        on: command.on.port(),
                        run: command.run.clone(),
                        background: command.background,
                        ready: traffic::Ready::default(),
                        timeout: self.left(),
                        environment: Default::default(),
                    };
                    let name = format!("traffic-{number}");
                    if command.background {
                        let started = runner
                            .start(self.hosts, self.directory, &name, self.cancel)
                            .map_err(said)?;
                        background.push((number, started));
                    } else {
                        let report = runner
                            .run(self.hosts, self.directory, &name, self.cancel)
                            .map_err(said)?;
                        records.push(command_record(number, &report)?);
                    }
                }
            }
        }
        for (number, started) in background {
            records.push(command_record(number, &started.stop().map_err(said)?)?);
        }
        records.sort_by_key(|record| record.number);
        Ok(records)
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn tcp(&self, number: u32, tcp: &plan::TcpTraffic) -> Step<TrafficRecord> {
        let hosts = self.hosts.ok_or("there are no hosts for built-in TCP")?;
        let report = traffic::TcpTraffic {
            from: tcp.from,
            to: tcp.to,
            bytes: tcp.bytes.0,
            connections: u16::try_from(tcp.connections).unwrap_or(u16::MAX),
            port: tcp.port,
            source_port: tcp.source_port,
            congestion_control: tcp.congestion_control.clone(),
            direction: tcp.direction,
            seed: self.seed,
            no_delay: tcp.no_delay,
            write_size: u32::try_from(tcp.write_size.0).unwrap_or(u32::MAX),
            timeout: self.left(),
        }
        .run(hosts, self.cancel)
        .map_err(said)?;
        let bytes: u64 = report
            .connections
            .iter()
            .flat_map(|c| &c.streams)
            .map(|s| s.bytes)
            .sum();
        let mut summary = format!("{bytes} bytes arrived in {}", time(report.duration_ns));
        if report.completed() {
            summary += ", every one right";
        }
        for error in report.connections.iter().flat_map(|c| &c.errors).take(3) {
            summary += &format!(", {error}");
        }
        Ok(TrafficRecord {
            number,
            what: tcp_what(tcp),
            completed: report.completed(),
            summary,
            details: serde_json::to_value(&report).map_err(said)?,
        })
    }
}

/// A TCP transfer in words.
pub(crate) fn tcp_what(tcp: &plan::TcpTraffic) -> String {
    let way = match tcp.direction {
        traffic::Direction::Send => "to",
        traffic::Direction::Receive => "from",
        traffic::Direction::Both => "to and from",
    };
    format!(
        "tcp {} {way} {}, {} × {}",
        tcp.from, tcp.to, tcp.connections, tcp.bytes
    )
}

pub(crate) fn command_record(number: u32, report: &traffic::CommandReport) -> Step<TrafficRecord> {
    use traffic::Outcome;
    // What the shell says of a program that it can't find, or can't run.
    if let Outcome::Exited { status: 126 | 127 } = report.outcome {
        let said = fs::read_to_string(&report.stderr).unwrap_or_default();
        return Err(format!(
            "traffic {number}: {:?} can't be run: {}",
            report.run,
            said.trim()
        ));
    }
    let summary = match report.outcome {
        Outcome::Exited { status: 0 } => "ended well".to_owned(),
        Outcome::Exited { status } => format!("ended with status {status}"),
        Outcome::Killed { signal } => format!("was killed by signal {signal}"),
        Outcome::TimedOut => "ran into the time limit".to_owned(),
        Outcome::Cancelled => "was broken off".to_owned(),
        Outcome::Stopped => "ran to the end of the traffic".to_owned(),
    };
    Ok(TrafficRecord {
        number,
        what: match report.on {
            Some(port) => format!("{} on {port}", report.run),
            None => report.run.clone(),
        },
        completed: report.completed(),
        summary: format!("{summary} after {}", time(report.duration_ns)),
        details: serde_json::to_value(report).map_err(said)?,
    })
}
