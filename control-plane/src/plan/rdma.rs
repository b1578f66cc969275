// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model NICs and the RDMA traffic between them, as a plan has them.

use midwire_endpoints::rnic::{
    CnpScope, Config, Fault, Latency, MAX_MESSAGE, NANOSECOND, NotificationPoint, Operation,
    Profile, RdmaTransfer, ReactionPoint,
};
use midwire_endpoints::{Cidr, Mac, Port, one_or_several};
use midwire_trace::Psn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, Size, one};

/// A model of an RDMA NIC, in virtual time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RnicEndpoint {
    /// One or several addresses.
    #[serde(with = "one_or_several")]
    #[schemars(schema_with = "one_or_several::schema")]
    pub address: Vec<Cidr>,
    /// Address of the interface; by default one derived from the plan's name and the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// What a bit takes from the NIC to the card. Default 500ns.
    #[serde(default = "default_delay")]
    pub delay: Duration,
    /// Congestion control.
    #[serde(default)]
    pub dcqcn: Dcqcn,
    /// Weights of the traffic classes that share the line. Default one class.
    #[serde(default = "one_class")]
    #[schemars(length(min = 1, max = 8))]
    pub ets: Vec<u32>,
    /// The NIC that it resembles in what is wrong with it. Default clean.
    #[serde(default = "clean")]
    pub profile: Profile,
    /// What else is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

fn clean() -> Profile {
    Profile::Clean
}

/// Congestion control of a model NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dcqcn {
    /// Answers congestion marks with notifications (CNP). Default true.
    pub np: bool,
    /// Slows down when it is notified. Default true.
    pub rp: bool,
    /// Least time from one notification to the next. Default 4us.
    pub min_time_between_cnps: Duration,
    /// Of which notifications. Default that of the profile: port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnp_limit: Option<CnpScope>,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            np: true,
            rp: true,
            min_time_between_cnps: Duration(
                NotificationPoint::default().min_time_between_cnps / NANOSECOND,
            ),
            cnp_limit: None,
        }
    }
}

fn default_delay() -> Duration {
    Duration(500)
}

fn one_class() -> Vec<u32> {
    vec![1]
}

impl RnicEndpoint {
    /// The model: at a port in a run of this name, on a line that takes so long for a byte.
    pub fn config(&self, name: &str, port: Port, byte_ps: u64) -> Config {
        Config {
            mac: self.mac.unwrap_or_else(|| Mac::derived(name, port)).0,
            addresses: self.address.iter().map(|cidr| cidr.address).collect(),
            byte_time: byte_ps,
            link_delay: self.delay.as_nanos() * NANOSECOND,
            latency: Latency::default(),
            classes: self.ets.iter().map(|weight| (*weight).into()).collect(),
            notification_point: NotificationPoint {
                enabled: self.dcqcn.np,
                min_time_between_cnps: self.dcqcn.min_time_between_cnps.as_nanos() * NANOSECOND,
                scope: (self.dcqcn.cnp_limit).unwrap_or_else(|| self.profile.cnp_scope()),
                ..NotificationPoint::default()
            },
            reaction_point: ReactionPoint {
                enabled: self.dcqcn.rp,
                ..ReactionPoint::default()
            },
            faults: [self.profile.faults(), &self.faults].concat(),
        }
    }

    /// What types can't say: the key and what is wrong there.
    pub(super) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let delay = self.delay.as_nanos();
        if !(1..=1_000_000_000).contains(&delay) {
            faults.push(("delay", format!("delay {}: expected 1ns to 1s", self.delay)));
        }
        if !(1..=8).contains(&self.ets.len()) || self.ets.contains(&0) {
            let expected = "expected 1 to 8 weights above 0";
            faults.push(("ets", format!("{expected}, one for each class")));
        }
        if self.dcqcn.min_time_between_cnps.as_nanos() > 1_000_000_000 {
            let time = self.dcqcn.min_time_between_cnps;
            let message = format!("min_time_between_cnps {time}: expected at most 1s");
            faults.push(("dcqcn", message));
        }
        faults
    }
}

/// What the messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// SEND, for which the other end has posted receives.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND and RDMA READ in turn.
    SendRead,
    /// Atomic fetch and add, of 8 bytes.
    FetchAdd,
    /// Atomic compare and swap, of 8 bytes.
    CompareSwap,
}

impl Verb {
    fn operations(self) -> Vec<Operation> {
        match self {
            Verb::Send => vec![Operation::Send],
            Verb::Write => vec![Operation::Write],
            Verb::Read => vec![Operation::Read],
            Verb::SendRead => vec![Operation::Send, Operation::Read],
            Verb::FetchAdd => vec![Operation::FetchAdd],
            Verb::CompareSwap => vec![Operation::CompareSwap],
        }
    }

    /// As the plan has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Send => "send",
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::SendRead => "send-read",
            Verb::FetchAdd => "fetch-add",
            Verb::CompareSwap => "compare-swap",
        }
    }
}

/// RDMA messages over queue pairs; every byte that arrives is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RdmaTraffic {
    /// Endpoint that asks.
    pub from: Port,
    /// Endpoint that answers.
    pub to: Port,
    /// What the messages are.
    pub verb: Verb,
    /// Queue pairs. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4096))]
    pub qps: u32,
    /// Messages of each queue pair.
    #[schemars(range(min = 1))]
    pub messages: u32,
    /// Bytes of each message. Atomic operations have 8, whatever it says.
    pub size: Size,
    /// Most bytes of payload in a packet. Default 1024.
    #[serde(default = "default_mtu")]
    #[schemars(extend("enum" = [256, 512, 1024, 2048, 4096]))]
    pub mtu: u32,
    /// Messages of a queue pair that are under way at a time. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub tx_depth: u32,
    /// The next tx_depth messages are posted when those of all queue pairs have completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub barrier: bool,
    /// Queue pairs take the addresses of both ends in turn; otherwise the first ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_gid: bool,
    /// The acknowledgement timer runs for 4.096 µs · 2^timeout; 0: without end. Default 14.
    #[serde(default = "default_timeout")]
    #[schemars(range(max = 31))]
    pub timeout: u8,
    /// Times that a packet is sent again before the queue pair fails. Default 7.
    #[serde(default = "seven")]
    #[schemars(range(max = 7))]
    pub retries: u8,
    /// The same for a receiver that is not ready; 7, the default: without end.
    #[serde(default = "seven")]
    #[schemars(range(max = 7))]
    pub rnr_retries: u8,
    /// Code of the time after which a receiver that is not ready wants to be asked again.
    /// Default 12: 0.64 ms.
    #[serde(default = "default_rnr_timer")]
    #[schemars(range(max = 31))]
    pub min_rnr_timer: u8,
    /// READs and atomic operations of a queue pair that wait for their responses. Default 16.
    #[serde(default = "default_max_reads")]
    #[schemars(range(min = 1, max = 128))]
    pub max_reads: u8,
    /// Receives that the end that answers has posted. Default 512.
    #[serde(default = "default_receives")]
    pub receives: u32,
    /// How long it takes until one that was used up is posted again. Default 0ns.
    #[serde(default = "at_once")]
    pub repost: Duration,
    /// First PSN of all queue pairs; by default the seed's choice for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 0xff_ffff))]
    pub first_psn: Option<u32>,
    /// Traffic classes, from 0, which queue pairs take in turn. Default all of class 0.
    #[serde(default = "class_0")]
    #[schemars(length(min = 1))]
    pub traffic_classes: Vec<u8>,
    /// DSCP of all packets but congestion notifications. Default 0.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub dscp: u8,
    /// It begins together with the entry before it. The next one begins when all that run together
    /// are over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
}

fn default_mtu() -> u32 {
    1024
}

fn default_timeout() -> u8 {
    14
}

fn seven() -> u8 {
    7
}

fn default_rnr_timer() -> u8 {
    12
}

fn default_max_reads() -> u8 {
    16
}

fn default_receives() -> u32 {
    512
}

fn at_once() -> Duration {
    Duration(0)
}

fn class_0() -> Vec<u8> {
    vec![0]
}

/// Packets of a message that the PSNs of a queue pair can still tell from others.
const MAX_PACKETS: u64 = 1 << 22;

impl RdmaTraffic {
    /// For the model.
    pub fn transfer(&self) -> RdmaTransfer {
        RdmaTransfer {
            from: self.from,
            operations: self.verb.operations(),
            qps: self.qps,
            messages: self.messages.into(),
            size: self.size.0,
            mtu: self.mtu,
            tx_depth: self.tx_depth.into(),
            barrier: self.barrier,
            multi_gid: self.multi_gid,
            timeout: self.timeout,
            retries: self.retries,
            rnr_retries: self.rnr_retries,
            min_rnr_timer: self.min_rnr_timer,
            max_reads: self.max_reads.into(),
            receives: self.receives.into(),
            repost: self.repost.as_nanos() * NANOSECOND,
            first_psn: self.first_psn.map(|psn| Psn::new(psn.into())),
            classes: self.traffic_classes.iter().map(|c| (*c).into()).collect(),
            dscp: self.dscp,
            together: self.together,
        }
    }

    /// What types can't say: the key and what is wrong there. The end that asks has so many
    /// classes, and the other one.
    pub(crate) fn faults(&self, classes: [usize; 2]) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let mut within = |key, value: u64, least: u64, most: u64| {
            if !(least..=most).contains(&value) {
                faults.push((key, format!("{key} {value}, expected {least} to {most}")));
            }
        };
        within("qps", self.qps.into(), 1, 4096);
        within("messages", self.messages.into(), 1, u32::MAX.into());
        within("size", self.size.0, 1, MAX_MESSAGE);
        within("tx_depth", self.tx_depth.into(), 1, u32::MAX.into());
        within("timeout", self.timeout.into(), 0, 31);
        within("retries", self.retries.into(), 0, 7);
        within("rnr_retries", self.rnr_retries.into(), 0, 7);
        within("min_rnr_timer", self.min_rnr_timer.into(), 0, 31);
        within("max_reads", self.max_reads.into(), 1, 128);
        within("repost", self.repost.as_nanos(), 0, 1_000_000_000);
        within(
            "first_psn",
            self.first_psn.unwrap_or(0).into(),
            0,
            0xff_ffff,
        );
        within("dscp", self.dscp.into(), 0, 63);
        if self.from == self.to {
            let message = format!("goes from {0} to {0}: expected the other endpoint", self.to);
            faults.push(("to", message));
        }
        if !matches!(self.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            let message = format!("mtu {}, expected 256, 512, 1024, 2048 or 4096", self.mtu);
            faults.push(("mtu", message));
        } else if self.size.0.saturating_mul(self.tx_depth.into()) / u64::from(self.mtu)
            > MAX_PACKETS
        {
            let message = format!(
                "more than {MAX_PACKETS} packets under way, which PSNs can't tell apart: expected \
                 smaller messages, fewer at a time, or a larger mtu"
            );
            faults.push(("size", message));
        }
        let least = classes[0].min(classes[1]);
        if self.traffic_classes.is_empty() {
            faults.push(("traffic_classes", "expected a class at least".to_owned()));
        } else if let Some(class) = self
            .traffic_classes
            .iter()
            .find(|c| usize::from(**c) >= least)
        {
            let message = format!(
                "traffic class {class}, but the endpoints have {least} (ets), counted from 0"
            );
            faults.push(("traffic_classes", message));
        }
        faults
    }
}
