// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What types can't say about a plan: ranges, contradictions, and events that can never fire.
//!
//! Where traffic is built in, the plan itself says which connections there will be, so an event
//! on any other one is a mistake here and not a run that fails.

use midwire_driver::{MAX_CLAUSES, Template};
use midwire_endpoints::linux::RDMA_COUNTERS;
use midwire_endpoints::rnic::Counters;
use midwire_endpoints::{Cidr, Port, TapHost, route};
use midwire_trace::Lane;

use super::edit::SetMistake;
use super::source::{Node, Step, at};
use super::{
    Action, Base, CardTime, CompletionExpectation, Connections, CounterExpectation, Endpoint,
    Endpoints, Event, Expectation, FindingsExpectation, Iterations, Kind, LinuxEndpoint, Mistake,
    Network, Plan, RnicEndpoint, RunLength, Selector, Set, Site, TcpTraffic, Traffic, Transport,
};
use crate::answers::MAX_TEMPLATES;
use crate::compile::compile;
use crate::merge::{self, PositionKey};
use crate::select::{MAX_RULES, Selection, select};
use crate::triggers::Triggers;

/// Longest frame without FCS.
const MAX_FRAME: u64 = 10_240;
/// Relative bytes that the card can tell apart: half of its 48-bit numbers.
const MAX_BYTE: u64 = 1 << 47;
/// Packets are counted with 32 bits.
const MAX_PACKET: u64 = 1 << 32;
/// PSNs behind the first, of 24 bits and their wraps.
const MAX_PSN: u64 = 1 << 31;
/// Each connection has a buffer of this size at both ends.
const MAX_WRITE: u64 = 16 << 20;
/// 40 bits of nanoseconds hold it.
const MAX_DELAY_NS: u64 = 1_000_000_000_000;
const MAX_GAP_NS: u64 = 4_000_000_000;

/// Every mistake of a plan that serde could read.
pub(super) fn check(plan: &Plan, tree: &Node) -> Vec<Mistake> {
    let mut checker = Checker {
        plan,
        tree,
        mistakes: Vec::new(),
    };
    checker.name();
    checker.card();
    checker.endpoints();
    checker.selectors();
    checker.traffic();
    checker.events();
    checker.expectations();
    checker.limits();
    checker.mistakes
}

/// What is wrong with a name that also names a directory.
pub(crate) fn mistake_in_name(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let right = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    (!right).then_some(
        "name: expected 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit",
    )
}

struct Checker<'a> {
    plan: &'a Plan,
    tree: &'a Node,
    mistakes: Vec<Mistake>,
}

/// A connection that built-in traffic will open.
struct Known<'a> {
    /// Number of the traffic entry, from 1.
    entry: usize,
    traffic: &'a TcpTraffic,
}

impl<'a> Checker<'a> {
    fn mistake(&mut self, path: &[Step<'_>], message: impl Into<String>) {
        let place = self.tree.place(path);
        self.mistakes.push(Mistake {
            place,
            message: message.into(),
        });
    }

    fn name(&mut self) {
        if let Some(message) = mistake_in_name(&self.plan.name) {
            self.mistake(at!["name"], message);
        }
    }

    fn card(&mut self) {
        if let Some(width) = self.plan.card.width
            && !matches!(width, 64 | 512)
        {
            self.mistake(
                at!["card", "width"],
                format!("card width {width}: expected 64 or 512"),
            );
        }
        if self.plan.is_external() {
            for (key, set) in [
                ("width", self.plan.card.width.is_some()),
                ("time", self.plan.card.time.is_some()),
            ] {
                if set {
                    self.mistake(
                        at!["card", key],
                        format!("{key} is that of the card into which the endpoints are plugged: leave it away"),
                    );
                }
            }
            return;
        }
        match (self.plan.card.time, self.plan.time()) {
            (Some(CardTime::Virtual), CardTime::Wall) => self.mistake(
                at!["card", "time"],
                "TAP endpoints live in the host's time: expected time: wall",
            ),
            (Some(CardTime::Wall), CardTime::Virtual) => self.mistake(
                at!["card", "time"],
                "linux, pcap and rnic endpoints live in virtual time: expected time: virtual",
            ),
            _ => {}
        }
    }

    fn endpoints(&mut self) {
        match (&self.plan.endpoints.a, &self.plan.endpoints.b) {
            (Endpoint::Tap(a), Endpoint::Tap(b)) => {
                for (side, tap) in [("a", a), ("b", b)] {
                    self.tap(side, tap);
                    self.host(side, "tap", tap);
                }
                self.neighbours("tap", a, b);
            }
            (Endpoint::Linux(a), Endpoint::Linux(b)) => {
                for (side, linux) in [("a", a), ("b", b)] {
                    for (key, fault) in linux.faults() {
                        self.mistake(at!["endpoints", side, "linux", key], fault);
                    }
                    self.host(side, "linux", &linux.host());
                }
                self.neighbours("linux", &a.host(), &b.host());
            }
            (Endpoint::Pcap(a), Endpoint::Pcap(b)) => {
                if a.input.is_none() && b.input.is_none() {
                    self.mistake(
                        at!["endpoints"],
                        "no frames come in: expected `in` at one of the pcap endpoints at least",
                    );
                }
                for (side, pcap) in [("a", a), ("b", b)] {
                    let Some(output) = &pcap.output else { continue };
                    let plain = output.components().all(|c| matches!(c, std::path::Component::Normal(_)));
                    if !plain || output.as_os_str().is_empty() {
                        self.mistake(
                            at!["endpoints", side, "pcap", "out"],
                            "out: expected a path inside the run's directory, such as seen.pcapng",
                        );
                    } else if ["run.json", "capture.mwc", "junit.xml", "report.html"]
                        .iter()
                        .any(|own| output.as_os_str() == *own)
                    {
                        self.mistake(
                            at!["endpoints", side, "pcap", "out"],
                            format!("out: {} is a file of the run itself", output.display()),
                        );
                    }
                }
                if a.output.is_some() && a.output == b.output {
                    self.mistake(
                        at!["endpoints", "b", "pcap", "out"],
                        "both ports write to this file: expected different ones",
                    );
                }
            }
            (Endpoint::Rnic(a), Endpoint::Rnic(b)) => {
                for (side, nic) in [("a", a), ("b", b)] {
                    for (key, fault) in nic.faults() {
                        self.mistake(at!["endpoints", side, "rnic", key], fault);
                    }
                }
                self.nics(a, b);
            }
            (Endpoint::Agent(a), Endpoint::Agent(b)) => {
                for (side, agent) in [("a", a), ("b", b)] {
                    for (key, fault) in agent.faults() {
                        self.mistake(at!["endpoints", side, "agent", key], fault);
                    }
                }
                self.gids("agent", &a.address, &b.address);
            }
            (Endpoint::External, Endpoint::External) => {}
            _ => self.mistake(
                at!["endpoints", "b"],
                "tap, linux, rnic, agent, pcap and external can't be mixed, for each needs another card: expected both endpoints of one type",
            ),
        }
    }

    fn tap(&mut self, side: &str, tap: &TapHost) {
        for name in tap.sysctls.keys() {
            if !name.replace('/', ".").starts_with("net.") {
                self.mistake(
                    at!["endpoints", side, "tap", "sysctls", name.as_str()],
                    format!("sysctl {name}: expected a setting of the network namespace, net.*"),
                );
            }
        }
        if tap.queue == 0 {
            self.mistake(
                at!["endpoints", side, "tap", "queue"],
                "queue 0: expected room for a frame at least",
            );
        }
    }

    /// What hosts of both kinds have in common.
    fn host(&mut self, side: &str, kind: &str, host: &TapHost) {
        let ipv6 = host.address.iter().any(|cidr| cidr.address.is_ipv6());
        let least = if ipv6 { 1280 } else { 68 };
        if !(least..=10_222).contains(&host.mtu) {
            self.mistake(
                at!["endpoints", side, kind, "mtu"],
                format!("mtu {}: expected {least} to 10222", host.mtu),
            );
        }
        for name in host.sysctls.keys() {
            let path = name.replace('/', ".");
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if path.contains("..") || path.starts_with('.') || !path.chars().all(plain) {
                self.mistake(
                    at!["endpoints", side, kind, "sysctls", name.as_str()],
                    format!(
                        "sysctl {name}: expected a setting's full name, such as net.ipv4.tcp_ecn"
                    ),
                );
            }
        }
        if let Some(name) = &host.congestion_control {
            self.congestion_control(at!["endpoints", side, kind, "congestion_control"], name);
        }
    }

    /// Whether two hosts can talk to each other.
    fn neighbours(&mut self, kind: &str, a: &TapHost, b: &TapHost) {
        let in_network = |host: &Cidr, other: &Cidr| Network::from(*host).contains(other.address);
        let address = at!["endpoints", "b", kind, "address"];
        if let Some(both) = b
            .address
            .iter()
            .find(|own| a.address.iter().any(|other| other.address == own.address))
        {
            self.mistake(
                address,
                format!("endpoint b has the address of endpoint a, {}", both.address),
            );
        } else if let Some((own, other)) = route(&a.address, &b.address) {
            if !in_network(own, other) || !in_network(other, own) {
                self.mistake(
                    address,
                    format!("{own} and {other} can't reach each other: expected one network"),
                );
            }
        } else {
            self.mistake(
                address,
                "endpoints a and b need addresses of one family, both IPv4 or both IPv6",
            );
        }
        if a.mac.is_some() && a.mac == b.mac {
            self.mistake(
                at!["endpoints", "b", kind, "mac"],
                "endpoint b has the mac of endpoint a",
            );
        }
    }

    /// Whether two NICs can be told apart.
    fn nics(&mut self, a: &RnicEndpoint, b: &RnicEndpoint) {
        self.gids("rnic", &a.address, &b.address);
        if a.mac.is_some() && a.mac == b.mac {
            self.mistake(
                at!["endpoints", "b", "rnic", "mac"],
                "endpoint b has the mac of endpoint a",
            );
        }
    }

    /// Whether every address of a NIC has one to talk to.
    fn gids(&mut self, kind: &str, a: &[Cidr], b: &[Cidr]) {
        let address = at!["endpoints", "b", kind, "address"];
        let all = || a.iter().chain(b);
        let families = all().map(|cidr| cidr.address.is_ipv4());
        if families.clone().any(|is_ipv4| is_ipv4) && !families.clone().all(|is_ipv4| is_ipv4) {
            self.mistake(
                address,
                "the addresses of NICs: expected all IPv4 or all IPv6",
            );
        }
        if let Some(both) = all().find(|own| all().filter(|c| c.address == own.address).count() > 1)
        {
            self.mistake(address, format!("{} is there twice", both.address));
        }
    }

    /// Traffic of model NICs, and none else with them.
    fn rdma(&mut self, i: usize, traffic: &Traffic) {
        let n = i + 1;
        let classes = match (&self.plan.endpoints.a, &self.plan.endpoints.b) {
            (Endpoint::Rnic(a), Endpoint::Rnic(b)) => Some([a.ets.len(), b.ets.len()]),
            (Endpoint::Linux(a), Endpoint::Linux(b)) if self.plan.sends_rdma() => {
                for (side, host) in [("a", a), ("b", b)] {
                    if !host.rdma {
                        let message = format!("traffic {n}: expected rdma: true of host {side}");
                        self.mistake(at!["endpoints", side, "linux"], message);
                    }
                }
                self.queue_pairs_of_hosts(i, [a, b]);
                Some([1, 1])
            }
            (Endpoint::Agent(_), Endpoint::Agent(_)) => Some([1, 1]),
            _ => None,
        };
        match (traffic, classes) {
            (Traffic::Rdma(rdma), Some(classes)) => {
                for (key, fault) in rdma.faults(classes) {
                    let message = format!("traffic {n}: {fault}");
                    self.mistake(at!["traffic", i, "rdma", key], message);
                }
                let before = i.checked_sub(1).and_then(|i| self.plan.traffic.get(i));
                if rdma.together && !matches!(before, Some(Traffic::Rdma(_))) {
                    let message = format!(
                        "traffic {n} begins together with the entry before it: expected one of rdma there"
                    );
                    self.mistake(at!["traffic", i, "rdma", "together"], message);
                }
            }
            (Traffic::Rdma(_), None) => self.mistake(
                at!["traffic", i],
                format!("traffic {n}: rdma goes between NICs, expected rnic or agent endpoints, or linux ones with rdma: true"),
            ),
            (_, Some(_)) => self.mistake(
                at!["traffic", i],
                format!("traffic {n}: NICs that send rdma run no programs, expected rdma: {{from: a, to: b, verb: write, …}}"),
            ),
            (_, None) => {}
        }
    }

    /// Whether the memories of hosts, and their consoles, have room for the queue pairs up to an entry
    /// of the traffic.
    fn queue_pairs_of_hosts(&mut self, i: usize, hosts: [&LinuxEndpoint; 2]) {
        const OF_MIB: u64 = 8;
        const MOST: u64 = 4096;
        let least = hosts.map(|host| host.memory.0 >> 20);
        let most = least[0].min(least[1]).saturating_mul(OF_MIB).min(MOST);
        let entries = self.plan.traffic[..=i].iter();
        let qps = |traffic: &Traffic| match traffic {
            Traffic::Rdma(rdma) => u64::from(rdma.qps),
            _ => 0,
        };
        let (own, all) = (qps(&self.plan.traffic[i]), entries.map(qps).sum::<u64>());
        if all > most && all - own <= most {
            let message = format!(
                "{all} queue pairs: expected at most {most} of linux endpoints, {OF_MIB} for each MiB of memory and no more than {MOST}"
            );
            self.mistake(at!["traffic", i, "rdma", "qps"], message);
        }
    }

    fn congestion_control(&mut self, path: &[Step<'_>], name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 15 || !name.chars().all(plain) {
            self.mistake(
                path,
                format!("congestion control {name:?}: expected a name of the kernel's such as cubic or reno"),
            );
        }
    }

    fn linux(&self) -> bool {
        matches!(self.plan.endpoints.a, Endpoint::Linux(_))
    }

    fn selectors(&mut self) {
        for (i, selector) in self.plan.selectors.iter().enumerate() {
            let n = i + 1;
            let Selector {
                transport,
                port,
                qp,
                source,
                destination,
                ..
            } = selector;
            if qp.is_some() && *transport == Some(Transport::Tcp) {
                self.mistake(
                    at!["selectors", i, "qp"],
                    format!("selector {n} matches nothing: TCP has no queue pairs, expected transport: roce"),
                );
            }
            if port.is_some() && *transport == Some(Transport::Roce) {
                self.mistake(
                    at!["selectors", i, "port"],
                    format!("selector {n} matches nothing: RoCE connections are named by qp, not by port"),
                );
            }
            if port.is_some() && qp.is_some() && transport.is_none() {
                self.mistake(
                    at!["selectors", i, "qp"],
                    format!("selector {n} matches nothing: port is of TCP and qp of RoCE, expected one of them"),
                );
            }
            if let Some(qp) = qp
                && *qp > 0xff_ffff
            {
                self.mistake(
                    at!["selectors", i, "qp"],
                    format!("queue pair {qp}: expected at most 16777215 (24 bits)"),
                );
            }
            if let (Some(source), Some(destination)) = (source, destination)
                && source.address.is_ipv4() != destination.address.is_ipv4()
            {
                self.mistake(
                    at!["selectors", i, "destination"],
                    format!("selector {n} matches nothing: source and destination are of different families"),
                );
                continue;
            }
            self.selector_reaches_endpoints(i, selector);
        }
    }

    /// With hosts the addresses on the wire are known.
    fn selector_reaches_endpoints(&mut self, i: usize, selector: &Selector) {
        let Some([a, b]) = self.plan.hosts() else {
            return;
        };
        let (a, b) = (&*a, &*b);
        let openers: &[Port] = match selector.from {
            Some(Port::A) => &[Port::A],
            Some(Port::B) => &[Port::B],
            None => &Port::ALL,
        };
        let any = |net: Option<Network>, host: &TapHost| {
            let within = |net: Network| host.address.iter().any(|cidr| net.contains(cidr.address));
            net.is_none_or(within)
        };
        let fits = |port: &Port| {
            let (from, to) = if *port == Port::A { (a, b) } else { (b, a) };
            any(selector.source, from) && any(selector.destination, to)
        };
        if !openers.iter().any(fits) {
            let key = if selector.source.is_some() {
                "source"
            } else {
                "destination"
            };
            self.mistake(
                at!["selectors", i, key],
                format!(
                    "selector {} matches nothing: connections go between {} (a) and {} (b), the opener being the source",
                    i + 1,
                    addresses(a),
                    addresses(b)
                ),
            );
        }
    }

    fn traffic(&mut self) {
        let none = self.plan.traffic.is_empty();
        let Endpoints { a: endpoint, b } = &self.plan.endpoints;
        if std::mem::discriminant(endpoint) != std::mem::discriminant(b) {
            return;
        }
        match (endpoint, self.plan.duration) {
            (Endpoint::External, None) if none => self.mistake(
                at!["endpoints"],
                "nothing says how long the run lasts: expected traffic, or duration: 10s or until-interrupted",
            ),
            (Endpoint::External, Some(_)) if !none => self.mistake(
                at!["duration"],
                "the run lasts as long as its traffic: expected duration or traffic, not both",
            ),
            (Endpoint::External, Some(RunLength::Of(length))) if length.as_nanos() == 0 => {
                self.mistake(at!["duration"], "duration 0: expected a time above 0");
            }
            (Endpoint::External, _) => {}
            (_, Some(_)) => self.mistake(
                at!["duration"],
                "duration is for external endpoints: the run lasts as long as its traffic or files",
            ),
            (Endpoint::Tap(_) | Endpoint::Linux(_), None) if none => self.mistake(
                at!["traffic"],
                "no traffic: expected an entry such as tcp: {from: a, to: b, bytes: 2MB}",
            ),
            (Endpoint::Rnic(_) | Endpoint::Agent(_), None) if none => self.mistake(
                at!["traffic"],
                "no traffic: expected an entry such as rdma: {from: a, to: b, verb: write, messages: 10, size: 10KiB}",
            ),
            (Endpoint::Pcap(_), None) if !none => {
                self.mistake(
                    at!["traffic"],
                    "pcap endpoints bring their own frames: expected no traffic",
                );
                return;
            }
            _ => {}
        }
        for (i, traffic) in self.plan.traffic.iter().enumerate() {
            let n = i + 1;
            self.rdma(i, traffic);
            match traffic {
                Traffic::Rdma(_) => {}
                Traffic::Tcp(_) if self.plan.is_external() => self.mistake(
                    at!["traffic", i],
                    format!("traffic {n}: midwire opens no connections at external endpoints, expected command: {{on: here, run: …}}"),
                ),
                Traffic::Tcp(tcp) => {
                    if tcp.from == tcp.to {
                        self.mistake(
                            at!["traffic", i, "tcp", "to"],
                            format!(
                                "traffic {n} goes from {0} to {0}: expected the other endpoint",
                                tcp.to
                            ),
                        );
                    }
                    if tcp.bytes.0 == 0 || tcp.bytes.0 > MAX_BYTE {
                        self.mistake(
                            at!["traffic", i, "tcp", "bytes"],
                            format!(
                                "traffic {n}: {} bytes, expected 1 to {MAX_BYTE}",
                                tcp.bytes.0
                            ),
                        );
                    }
                    if !(1..=1024).contains(&tcp.connections) {
                        self.mistake(
                            at!["traffic", i, "tcp", "connections"],
                            format!(
                                "traffic {n}: {} connections, expected 1 to 1024",
                                tcp.connections
                            ),
                        );
                    }
                    if tcp.port == 0 {
                        self.mistake(
                            at!["traffic", i, "tcp", "port"],
                            format!("traffic {n}: port 0, expected 1 to 65535"),
                        );
                    }
                    if let Some(first) = tcp.source_port {
                        let last = u32::from(first) + tcp.connections.saturating_sub(1);
                        if first == 0 || last > 65_535 {
                            self.mistake(
                                at!["traffic", i, "tcp", "source_port"],
                                format!("traffic {n}: source ports {first} to {last}, expected 1 to 65535"),
                            );
                        }
                    }
                    if !(1..=MAX_WRITE).contains(&tcp.write_size.0) {
                        self.mistake(
                            at!["traffic", i, "tcp", "write_size"],
                            format!(
                                "traffic {n}: writes of {} bytes, expected 1 to {MAX_WRITE}",
                                tcp.write_size.0
                            ),
                        );
                    }
                    if let Some(name) = &tcp.congestion_control {
                        self.congestion_control(
                            at!["traffic", i, "tcp", "congestion_control"],
                            name,
                        );
                    }
                }
                Traffic::Command(command) => {
                    if command.run.trim().is_empty() || command.run.contains('\0') {
                        self.mistake(
                            at!["traffic", i, "command", "run"],
                            format!("traffic {n}: expected a command line"),
                        );
                    }
                    if self.plan.is_external() && command.on != Site::Here {
                        self.mistake(
                            at!["traffic", i, "command", "on"],
                            format!("traffic {n}: an external endpoint is out of midwire's reach, expected on: here (this machine)"),
                        );
                    }
                    if self.linux() && command.on == Site::Here {
                        self.mistake(
                            at!["traffic", i, "command", "on"],
                            format!("traffic {n}: this machine is not in virtual time, expected on: a or on: b"),
                        );
                    }
                }
            }
        }
        let background = |t: &Traffic| matches!(t, Traffic::Command(c) if c.background);
        if !self.plan.traffic.is_empty() && self.plan.traffic.iter().all(background) {
            self.mistake(
                at!["traffic"],
                "all traffic runs in the background, so the run ends at once: expected one entry that does not",
            );
        }
    }

    /// The connections to come in their order, where the plan alone decides them.
    fn known(&self) -> Option<Vec<Known<'a>>> {
        let plan = self.plan;
        let [a, b] = plan.hosts()?;
        let mut known = Vec::new();
        for (i, traffic) in plan.traffic.iter().enumerate() {
            let Traffic::Tcp(tcp) = traffic else {
                return None;
            };
            let (from, to) = if tcp.from == Port::A {
                (&a, &b)
            } else {
                (&b, &a)
            };
            let (source, destination) = route(&from.address, &to.address)?;
            let (source, destination) = (source.address, destination.address);
            let admits = |s: &Selector| {
                s.transport.is_none_or(|t| t == Transport::Tcp)
                    && s.qp.is_none()
                    && s.port.is_none_or(|port| port == tcp.port)
                    && s.from.is_none_or(|from| from == tcp.from)
                    && s.source.is_none_or(|net| net.contains(source))
                    && s.destination.is_none_or(|net| net.contains(destination))
            };
            if plan.selectors.is_empty() || plan.selectors.iter().any(admits) {
                let times = tcp.connections.min(1024);
                known.extend((0..times).map(|_| Known {
                    entry: i + 1,
                    traffic: tcp,
                }));
            }
        }
        Some(known)
    }

    /// True when every selector is of a transport that is not this one.
    fn excluded(&self, transport: Transport) -> bool {
        let other = |s: &Selector| match transport {
            Transport::Tcp => s.transport == Some(Transport::Roce) || s.qp.is_some(),
            Transport::Roce => s.transport == Some(Transport::Tcp) || s.port.is_some(),
        };
        !self.plan.selectors.is_empty() && self.plan.selectors.iter().all(other)
    }

    fn events(&mut self) {
        let known = self.known();
        let (triggers, faults) = Triggers::of(&self.plan.events);
        for (i, key, reason) in faults {
            self.mistake(at!["events", i, key], format!("event {}: {reason}", i + 1));
        }
        let mut rules = [0; 2];
        for (i, event) in self.plan.events.iter().enumerate() {
            let named = self.position(i, event);
            let admitted = self.kind(i, event);
            self.action(i, event, triggers.works(i));
            if named && let Some(selection) = self.selection(i, event) {
                let lane = &mut rules[event.direction.index()];
                *lane += usize::from(matches!(selection, Selection::Rule(_)));
                if *lane == MAX_RULES + 1 {
                    self.mistake(
                        at!["events", i],
                        format!(
                            "event {}: {MAX_RULES} events of this direction go by rules already, \
                             which is all that the card holds",
                            i + 1
                        ),
                    );
                }
            }
            if let Some(known) = &known {
                if admitted {
                    self.reachable(i, event, known);
                }
            } else if let Connections::One(connection) = event.connection
                && connection > 65_534
            {
                self.mistake(
                    at!["events", i, "connection"],
                    format!(
                        "event {}: connection {connection}, expected 0 to 65534",
                        i + 1,
                    ),
                );
            }
        }
        self.positions(&triggers);
        self.templates();
    }

    /// Whether the card holds all the frames that are made.
    fn templates(&mut self) {
        let injects = |event: &Event| event.action.inject.is_some();
        if !self.mistakes.is_empty() || !self.plan.events.iter().any(injects) {
            return;
        }
        let templates = compile(self.plan, 0).program.templates;
        let count = templates.len();
        if count > MAX_TEMPLATES {
            self.mistake(
                at!["events"],
                format!(
                    "the events inject {count} different frames: expected at most {MAX_TEMPLATES}, \
                     which is all that the card holds"
                ),
            );
        } else if let Err((frame, reason)) = Template::fit(&templates) {
            self.mistake(
                at!["events"],
                format!(
                    "the events inject {count} different frames, number {}: {reason}",
                    frame + 1
                ),
            );
        }
    }

    /// False when not exactly one key says which packets.
    fn position(&mut self, i: usize, event: &Event) -> bool {
        let n = i + 1;
        let named: Vec<&str> = event.named().map(|(key, _)| key).collect();
        match named.as_slice() {
            [] => self.mistake(
                at!["events", i],
                format!("event {n} names no position: expected one of packet, byte, psn and count"),
            ),
            [_] => {}
            [.., last] => self.mistake(
                at!["events", i, *last],
                format!(
                    "event {n} names {}: expected one position",
                    named.join(" and ")
                ),
            ),
        }
        for (key, numbers) in event.named() {
            let lowest = numbers.ranges().first().map_or(0, |range| range.0);
            if matches!(key, "packet" | "count") && lowest == 0 && !numbers.is_all() {
                self.mistake(
                    at!["events", i, key],
                    format!("event {n}: packet 0, but packets count from 1"),
                );
            }
            let limit = match key {
                "byte" => MAX_BYTE,
                "psn" => MAX_PSN,
                _ => MAX_PACKET,
            };
            if numbers.highest() >= limit {
                self.mistake(
                    at!["events", i, key],
                    format!("event {n}: expected a {key} below {limit}"),
                );
                return false;
            }
        }
        named.len() == 1
    }

    /// How the card finds the packets.
    fn selection(&mut self, i: usize, event: &Event) -> Option<Selection> {
        let fault = match select(event) {
            Ok(selection) => return Some(selection),
            Err(fault) => fault,
        };
        let (key, reason) = fault;
        self.mistake(at!["events", i, key], format!("event {}: {reason}", i + 1));
        None
    }

    /// False when the selectors keep the kind out.
    fn kind(&mut self, i: usize, event: &Event) -> bool {
        let n = i + 1;
        let kinds = event.kinds();
        if kinds.is_empty() {
            self.mistake(
                at!["events", i, "kind"],
                format!("event {n} means no kind of packet: expected one at least"),
            );
        }
        for (key, what) in [
            ("byte", "bytes are carried by data"),
            ("psn", "psn names a data packet or read request"),
        ] {
            let named = event.named().any(|(name, _)| name == key);
            if let Some(kind) = kinds.iter().find(|kind| **kind != Kind::Data)
                && named
            {
                self.mistake(
                    at!["events", i, "kind"],
                    format!("event {n}: {what}, expected kind: data and not {kind}"),
                );
            }
        }
        let excluded =
            |kind: &Kind| transport_of(kind, event).filter(|&transport| self.excluded(transport));
        let out: Option<Vec<_>> = kinds.iter().map(excluded).collect();
        let keeps_out = match event.connection {
            Connections::None => None,
            _ => out.and_then(|out| out.first().copied()),
        };
        if let Some(transport) = keeps_out {
            let what = match (kinds, event.numbers()) {
                ([Kind::Data], Some(("packet", _)) | None) => "a data packet by number".to_owned(),
                ([Kind::Data], Some((key, _))) => key.to_owned(),
                (kinds, _) => format!("kind {}", kinds[0]),
            };
            let (of, admitted) = match transport {
                Transport::Tcp => ("TCP", "RoCE"),
                Transport::Roce => ("RoCE", "TCP"),
            };
            self.mistake(
                at!["events", i],
                format!("event {n} can't fire: {what} is of {of}, and the selectors admit {admitted} only"),
            );
        }
        // Only data and read requests have a place of their own that is seen again.
        let once = [Iterations::first(), Iterations::all()].contains(&event.iterations);
        if let Some(kind) = kinds.iter().find(|kind| **kind != Kind::Data)
            && !once
        {
            self.mistake(
                at!["events", i, "iterations"],
                format!(
                    "event {n}: each {kind} packet has a number of its own and is seen once, expected iteration 1"
                ),
            );
        }
        keeps_out.is_none()
    }

    fn action(&mut self, i: usize, event: &Event, works: bool) {
        let n = i + 1;
        let action = &event.action;
        let Action {
            drop,
            set,
            corrupt,
            delay,
            reorder,
            duplicate,
            inject,
            ..
        } = action;
        let others = Action {
            drop: false,
            ..action.clone()
        } != Action::default();
        if !drop && !others && !works && event.name.is_none() {
            self.mistake(
                at!["events", i, "action"],
                format!("event {n} does nothing, and has no name: expected drop, ecn, set, corrupt, break, truncate, delay, reorder, duplicate or inject"),
            );
        }
        if *drop && *action != action.of_dropped() {
            self.mistake(
                at!["events", i, "action"],
                format!("event {n}: a packet that is dropped can have no other action but inject, expected drop alone or with inject"),
            );
        }
        if let Some(set) = set
            && let Err(SetMistake { key, reason }) = set.write()
        {
            let path: Vec<Step<'_>> = at!["events", i, "action", "set"]
                .iter()
                .copied()
                .chain(key.map(Step::Key))
                .collect();
            self.mistake(&path, format!("event {n}: {reason}"));
        }
        if action.mend().is_err() {
            self.mistake(
                at!["events", i, "action", "corrupt"],
                format!("event {n}: set and corrupt change the packet together, so the same checksums are mended: expected the same mend at both (set has all by default, corrupt none)"),
            );
        }
        if let Some(bytes) = action.truncate
            && !(1..MAX_FRAME).contains(&u64::from(bytes))
        {
            self.mistake(
                at!["events", i, "action", "truncate"],
                format!(
                    "event {n}: {bytes} bytes are kept, expected 1 to {}",
                    MAX_FRAME - 1
                ),
            );
        }
        self.edited_transport(i, event);
        if let Some(inject) = inject
            && let Some((option, reason)) = inject.mistake(event.direction)
        {
            let path: Vec<Step<'_>> = at!["events", i, "action", "inject", inject.name()]
                .iter()
                .copied()
                .chain(option.map(Step::Key))
                .collect();
            self.mistake(&path, format!("event {n}: {reason}"));
        }
        if let Some(delay) = delay
            && !(1..=MAX_DELAY_NS).contains(&delay.as_nanos())
        {
            self.mistake(
                at!["events", i, "action", "delay"],
                format!("event {n}: delay {delay}, expected 1ns to 1000s"),
            );
        }
        if let Some(reorder) = reorder
            && !(1..=u32::from(u16::MAX)).contains(&reorder.after)
        {
            let after = reorder.after;
            self.mistake(
                at!["events", i, "action", "reorder"],
                format!(
                    "event {n}: {after} packets before it, expected 1 to {}",
                    u16::MAX
                ),
            );
        }
        if let Some(duplicate) = duplicate {
            let copies = duplicate.copies;
            if !(1..=u32::from(u8::MAX)).contains(&copies) {
                self.mistake(
                    at!["events", i, "action", "duplicate"],
                    format!("event {n}: {copies} copies, expected 1 to {}", u8::MAX),
                );
            }
            if duplicate.gap.as_nanos() > MAX_GAP_NS {
                self.mistake(
                    at!["events", i, "action", "duplicate", "gap"],
                    format!("event {n}: gap {}, expected 0ns to 4s", duplicate.gap),
                );
            }
        }
        if let Some(corrupt) = corrupt {
            if corrupt.mask == 0 {
                self.mistake(
                    at!["events", i, "action", "corrupt", "mask"],
                    format!("event {n}: mask 0 changes nothing, expected 0x01 to 0xff"),
                );
            }
            if corrupt.offset > 0xfff {
                self.mistake(
                    at!["events", i, "action", "corrupt", "offset"],
                    format!("event {n}: offset {}, expected 0 to 4095", corrupt.offset),
                );
            }
            let bare = event
                .kinds()
                .iter()
                .all(|kind| matches!(kind, Kind::Ack | Kind::Syn | Kind::Rst));
            if bare && corrupt.at == Base::Payload {
                self.mistake(
                    at!["events", i, "action", "corrupt"],
                    format!("event {n}: {} packets have no payload to corrupt, expected at: frame, ip or transport", event.kinds().first().unwrap_or(&Kind::Ack)),
                );
            }
        }
    }

    /// Whether the packets have the fields and checksums that are to change.
    fn edited_transport(&mut self, i: usize, event: &Event) {
        let n = i + 1;
        if event.action.broken.ip && self.speaks_ipv6() {
            self.mistake(
                at!["events", i, "action", "break"],
                format!("event {n} can't be carried out: an IPv6 header has no checksum, and both endpoints have IPv6 addresses only"),
            );
        }
        let others = [
            (Transport::Tcp, Transport::Roce),
            (Transport::Roce, Transport::Tcp),
        ];
        let admitted = others
            .into_iter()
            .find_map(|(transport, other)| self.excluded(other).then_some(transport));
        // Built-in traffic is of TCP.
        let known = self.known().map(|_| Transport::Tcp);
        let of_kinds = (event.kinds().iter()).find_map(|kind| transport_of(kind, event));
        let Some(is) = of_kinds.or(admitted).or(known) else {
            return;
        };
        let has = match is {
            Transport::Tcp => "the event is of TCP",
            Transport::Roce => "the event is of RoCE",
        };
        if let Some((needs, field)) = event.action.set.as_ref().and_then(Set::transport)
            && needs != is
        {
            let of = match needs {
                Transport::Tcp => "TCP",
                Transport::Roce => "RoCE",
            };
            self.mistake(
                at!["events", i, "action", "set", field],
                format!("event {n} can't be carried out: {field} is a field of {of}, and {has}"),
            );
        }
        if let Some(inject) = &event.action.inject
            && let Some(needs) = inject.transport().filter(|needs| *needs != is)
            && inject.mistake(event.direction).is_none()
        {
            let of = match needs {
                Transport::Tcp => "TCP",
                Transport::Roce => "RoCE",
            };
            self.mistake(
                at!["events", i, "action", "inject"],
                format!(
                    "event {n} can't be carried out: {} is made of packets of {of} alone, and {has}",
                    inject.name()
                ),
            );
        }
        if event.action.broken.icrc && is == Transport::Tcp {
            self.mistake(
                at!["events", i, "action", "break"],
                format!("event {n} can't be carried out: TCP has no ICRC, and {has}"),
            );
        }
    }

    /// Both endpoints are known to have IPv6 addresses only.
    fn speaks_ipv6(&self) -> bool {
        (self.plan.endpoints.both().iter()).all(|(_, endpoint)| {
            let addresses = match endpoint {
                Endpoint::Tap(host) => &host.address,
                Endpoint::Linux(host) => &host.address,
                Endpoint::Rnic(nic) => &nic.address,
                _ => return false,
            };
            addresses.iter().all(|cidr| cidr.address.is_ipv6())
        })
    }

    /// Whether built-in traffic can bring the packet at all.
    fn reachable(&mut self, i: usize, event: &Event, known: &[Known<'_>]) {
        let n = i + 1;
        let Connections::One(connection) = event.connection else {
            return;
        };
        let Some(Known { entry, traffic }) = known.get(connection as usize) else {
            let path = at!["events", i, "connection"];
            self.mistake(
                path,
                format!("event {n} can't fire: {}", beyond(connection, known)),
            );
            return;
        };
        let of_roce = |kind: &Kind| matches!(kind, Kind::Nak | Kind::Cnp);
        let kinds = event.kinds();
        if event.psn.is_some() || (!kinds.is_empty() && kinds.iter().all(of_roce)) {
            self.mistake(
                at!["events", i],
                format!(
                    "event {n} can't fire: connection {connection} is of TCP (traffic {entry})"
                ),
            );
        } else if let Some(data) = traffic.data()
            && kinds == [Kind::Data]
            && event.direction != data
        {
            self.mistake(
                at!["events", i, "direction"],
                format!(
                    "event {n} can't fire: data of connection {connection} goes {data} (traffic {entry})"
                ),
            );
        } else if let Some(bytes) = &event.byte
            && bytes.highest() >= traffic.bytes.0
        {
            self.mistake(
                at!["events", i, "byte"],
                format!(
                    "event {n} can't fire: connection {connection} carries {} bytes (traffic {entry}), the last is {}",
                    traffic.bytes.0,
                    traffic.bytes.0.saturating_sub(1)
                ),
            );
        }
    }

    /// Events that meet at one position.
    fn positions(&mut self, triggers: &Triggers) {
        for (
            PositionKey {
                connection,
                direction,
                position,
            },
            events,
        ) in merge::by_position(&self.plan.events)
        {
            match merge::merge(&events, triggers) {
                Err(conflict) => self.mistake(
                    at!["events", conflict.second],
                    format!(
                        "events {} and {} both take iteration {} of {position}, connection {connection} {direction}: {}",
                        conflict.first + 1,
                        conflict.second + 1,
                        conflict.iteration,
                        conflict.reason
                    ),
                ),
                Ok(clauses) if clauses.len() > MAX_CLAUSES => {
                    let last = events.last().map_or(0, |(index, _)| *index);
                    self.mistake(
                        at!["events", last],
                        format!(
                            "{} different ranges of iterations at {position}, connection {connection} {direction}: the card holds {MAX_CLAUSES}",
                            clauses.len()
                        ),
                    );
                }
                Ok(_) => {}
            }
        }
    }

    fn expectations(&mut self) {
        let known = self.known();
        let pcaps = matches!(self.plan.endpoints.a, Endpoint::Pcap(_));
        let mut outcome = None;
        for (i, expectation) in self.plan.expect.iter().enumerate() {
            let n = i + 1;
            let (key, connection, direction) = match expectation {
                Expectation::Traffic(expected) => {
                    if pcaps {
                        self.mistake(
                            at!["expect", i],
                            format!("expectation {n}: there is no traffic with pcap endpoints"),
                        );
                    } else if self.plan.is_external() && self.plan.traffic.is_empty() {
                        self.mistake(
                            at!["expect", i],
                            format!("expectation {n}: the plan has no traffic of its own"),
                        );
                    }
                    if outcome
                        .replace(expected)
                        .is_some_and(|before| before != expected)
                    {
                        self.mistake(
                            at!["expect", i],
                            format!("expectation {n} contradicts an earlier one: traffic either completes or fails"),
                        );
                    }
                    continue;
                }
                Expectation::Counter(expected) => {
                    self.counter(i, expected);
                    continue;
                }
                Expectation::Findings(expected) => {
                    self.findings(i, expected);
                    continue;
                }
                Expectation::Completion(expected) => {
                    self.completion(i, expected);
                    continue;
                }
                Expectation::Retransmission(r) => {
                    if r.packet.is_some() && r.byte.is_some() {
                        self.mistake(
                            at!["expect", i, "retransmission", "byte"],
                            format!("expectation {n} names packet and byte: expected one of them"),
                        );
                    }
                    if r.packet == Some(0) {
                        self.mistake(
                            at!["expect", i, "retransmission", "packet"],
                            format!("expectation {n}: packet 0, but packets count from 1"),
                        );
                    }
                    if r.within.is_some_and(|within| within.as_nanos() == 0) {
                        self.mistake(
                            at!["expect", i, "retransmission", "within"],
                            format!("expectation {n}: expected a time above 0"),
                        );
                    }
                    ("retransmission", r.connection, r.direction)
                }
                Expectation::Retransmissions(r) => {
                    let path = at!["expect", i, "retransmissions"];
                    self.bounds(path, n, r.at_least, r.at_most);
                    ("retransmissions", r.connection, r.direction)
                }
            };
            if self.excluded(Transport::Tcp) {
                self.mistake(
                    at!["expect", i],
                    format!("expectation {n}: retransmissions are told of TCP, and the selectors admit RoCE only"),
                );
            }
            if let Some(known) = &known {
                self.observable(at!["expect", i, key], n, connection, direction, known);
            } else if connection > 65_534 {
                self.mistake(
                    at!["expect", i, key, "connection"],
                    format!("expectation {n}: connection {connection}, expected 0 to 65534"),
                );
            }
        }
    }

    /// Whether built-in traffic brings what an expectation looks at.
    fn observable(
        &mut self,
        path: &[Step<'_>],
        n: usize,
        connection: u32,
        direction: Option<Lane>,
        known: &[Known<'_>],
    ) {
        let (message, key) = match known.get(connection as usize) {
            None => (
                format!(
                    "expectation {n} can't be met: {}",
                    beyond(connection, known)
                ),
                "connection",
            ),
            Some(Known { entry, traffic }) => match (direction, traffic.data()) {
                (Some(direction), Some(data)) if direction != data => (
                    format!(
                        "expectation {n}: data of connection {connection} goes {data} (traffic {entry})"
                    ),
                    "direction",
                ),
                _ => return,
            },
        };
        let path: Vec<Step<'_>> = path.iter().copied().chain([Step::Key(key)]).collect();
        self.mistake(&path, message);
    }

    fn counter(&mut self, i: usize, expected: &CounterExpectation) {
        let n = i + 1;
        let names: Vec<_> = match self.plan.endpoints.at(expected.endpoint) {
            Endpoint::Rnic(_) => Counters::names().collect(),
            Endpoint::Linux(host) if host.rdma => RDMA_COUNTERS.to_vec(),
            // Which there are is the NIC's affair.
            Endpoint::Agent(_) => vec![&*expected.name],
            _ => {
                let message = format!(
                    "expectation {n}: counters are those of RDMA, expected rnic or agent endpoints, \
                     or linux ones with rdma"
                );
                return self.mistake(at!["expect", i], message);
            }
        };
        if !names.contains(&expected.name.as_str()) {
            self.mistake(
                at!["expect", i, "counter", "name"],
                format!(
                    "expectation {n}: there is no counter {}, expected one of {}",
                    expected.name,
                    names.join(", ")
                ),
            );
        }
        self.bounds(
            at!["expect", i, "counter"],
            n,
            expected.at_least,
            expected.at_most,
        );
    }

    fn findings(&mut self, i: usize, expected: &FindingsExpectation) {
        let n = i + 1;
        if self.excluded(Transport::Roce) {
            self.mistake(
                at!["expect", i],
                format!(
                    "expectation {n}: findings are told of RoCE, and the selectors admit TCP only"
                ),
            );
        }
        self.bounds(
            at!["expect", i, "findings"],
            n,
            expected.at_least,
            expected.at_most,
        );
    }

    fn completion(&mut self, i: usize, expected: &CompletionExpectation) {
        let n = i + 1;
        let entry = (expected.traffic as usize).checked_sub(1);
        let Some(Traffic::Rdma(rdma)) = entry.and_then(|entry| self.plan.traffic.get(entry)) else {
            let message = format!(
                "expectation {n}: traffic {} is not of RDMA messages",
                expected.traffic
            );
            return self.mistake(at!["expect", i, "completion", "traffic"], message);
        };
        let highest = expected.queue_pairs.highest();
        if highest >= rdma.qps.into() {
            let message = format!(
                "expectation {n}: queue pair {highest}, but traffic {} has {}, counted from 0",
                expected.traffic, rdma.qps
            );
            self.mistake(at!["expect", i, "completion", "queue_pairs"], message);
        }
        if expected.within.as_nanos() == 0 {
            let message = format!("expectation {n}: expected a time above 0");
            self.mistake(at!["expect", i, "completion", "within"], message);
        }
    }

    /// A number that has to be within bounds needs one, and room between two.
    fn bounds(&mut self, path: &[Step<'_>], n: usize, least: Option<u64>, most: Option<u64>) {
        match (least, most) {
            (None, None) => self.mistake(
                path,
                format!("expectation {n} demands nothing: expected at_most, at_least or both"),
            ),
            (Some(least), Some(most)) if least > most => self.mistake(
                &[path, &[Step::Key("at_least")]].concat(),
                format!("expectation {n}: at_least {least} is above at_most {most}"),
            ),
            _ => {}
        }
    }

    fn limits(&mut self) {
        let snapshot = self.plan.capture.snapshot.0;
        if snapshot > MAX_FRAME {
            self.mistake(
                at!["capture", "snapshot"],
                format!("snapshot of {snapshot} bytes: expected 0 to {MAX_FRAME}"),
            );
        }
        let second = 1_000_000_000;
        let hour = 3_600 * second;
        for (key, value, most) in [
            ("traffic", self.plan.timeouts.traffic, 24 * hour),
            ("quiet", self.plan.timeouts.quiet, hour),
            ("reorder", self.plan.timeouts.reorder, 4 * second),
        ] {
            if !(1..=most).contains(&value.as_nanos()) {
                self.mistake(
                    at!["timeouts", key],
                    format!(
                        "timeout {value}: expected above 0 and at most {}s",
                        most / second
                    ),
                );
            }
        }
    }
}

/// The transport that packets of a kind are of, where the event says so.
fn transport_of(kind: &Kind, event: &Event) -> Option<Transport> {
    match kind {
        Kind::Nak | Kind::Cnp => Some(Transport::Roce),
        Kind::Syn | Kind::Fin | Kind::Rst => Some(Transport::Tcp),
        Kind::Data => match event.numbers()? {
            ("psn", _) => Some(Transport::Roce),
            ("packet", numbers) if numbers.is_all() => None,
            ("count", _) => None,
            _ => Some(Transport::Tcp),
        },
        Kind::Ack | Kind::Any => None,
    }
}

/// The addresses of a host, for people.
fn addresses(host: &TapHost) -> String {
    let all: Vec<_> = host.address.iter().map(|c| c.address.to_string()).collect();
    all.join(", ")
}

/// Why a connection will not be there.
fn beyond(connection: u32, known: &[Known<'_>]) -> String {
    match known.len() {
        0 => {
            format!("there is no connection {connection}, the selectors admit none of the traffic")
        }
        1 => format!("there is no connection {connection}, the traffic opens one, connection 0"),
        n => format!("there is no connection {connection}, the traffic opens {n}, counted from 0"),
    }
}
