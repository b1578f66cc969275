// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model of RDMA NICs: reliable connections over RoCEv2, in virtual time.
//!
//! It is a state machine without input or output of its own: frames come in with their times,
//! frames go out, and it says when it will act next. Two runs of the same input are the same to
//! the bit. What it does is by the InfiniBand specification, volume 1, chapter 9, and annex A17.
//!
//! A [`Testbed`] is two of them and the transfers between them.

mod counters;
mod dcqcn;
mod faults;
mod nic;
mod qp;
mod requester;
mod responder;
mod testbed;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use counters::Counters;
pub use dcqcn::{CnpScope, NotificationPoint, ReactionPoint};
pub use faults::{Fault, Profile};
pub use nic::Rnic;
pub use qp::QpConfig;
pub(crate) use testbed::rate;
pub use testbed::{MAX_MESSAGE, Plug, QpReport, RdmaNics, RdmaReport, RdmaTransfer, Testbed};
pub use transfer::{CompletionTimes, Flow, Message, Transfer, TransferConfig};

/// Picoseconds of virtual time.
pub type Picoseconds = u64;

/// A nanosecond.
pub const NANOSECOND: Picoseconds = 1_000;

/// A microsecond.
pub const MICROSECOND: Picoseconds = 1_000_000;

/// Bits that a byte a picosecond are in a second.
const BIT_PICOSECONDS: u64 = 8_000_000_000_000;

/// A frame on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When its first bit leaves.
    pub at: Picoseconds,
    /// Its bytes, without FCS.
    pub data: Vec<u8>,
    /// It has a wrong FCS.
    pub bad: bool,
}

/// What a queue pair is asked for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// SEND into a receive that the peer has posted.
    Send,
    /// RDMA WRITE into the peer's memory.
    Write,
    /// RDMA READ from the peer's memory.
    Read,
    /// Atomic fetch and add.
    FetchAdd,
    /// Atomic compare and swap.
    CompareSwap,
}

impl Operation {
    /// Whether it has a response of its own instead of an acknowledgement.
    pub(crate) fn is_answered(self) -> bool {
        !matches!(self, Operation::Send | Operation::Write)
    }

    /// Whether it changes 8 bytes of the peer's memory.
    pub fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was carried out.
    Success,
    /// No acknowledgement came, however often it was sent.
    RetryExceeded,
    /// The receiver never was ready.
    RnrRetryExceeded,
    /// The peer says that the request is none.
    RemoteInvalidRequest,
    /// The peer says that the memory is not to be reached.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteOperation,
    /// The queue pair had failed before.
    Flushed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::RetryExceeded => "retry counter exceeded",
            Status::RnrRetryExceeded => "RNR retry counter exceeded",
            Status::RemoteInvalidRequest => "remote invalid request",
            Status::RemoteAccess => "remote access error",
            Status::RemoteOperation => "remote operation error",
            Status::Flushed => "flushed",
        })
    }
}

/// How long the NIC takes for what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// From a request to its acknowledgement.
    pub ack: Picoseconds,
    /// From a packet that is out of sequence, or can't be taken, to the NAK.
    pub nak: Picoseconds,
    /// From a NAK to the retransmission.
    pub go_back: Picoseconds,
    /// From a READ request to its first response.
    pub read_response: Picoseconds,
    /// From a response that is out of sequence to the new READ request.
    pub read_again: Picoseconds,
    /// From a congestion mark to the notification.
    pub cnp: Picoseconds,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            ack: MICROSECOND / 2,
            nak: 2 * MICROSECOND,
            go_back: 2 * MICROSECOND,
            read_response: MICROSECOND,
            read_again: 2 * MICROSECOND,
            cnp: MICROSECOND,
        }
    }
}

/// How a NIC is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IP addresses: GIDs.
    pub addresses: Vec<IpAddr>,
    /// What a byte takes on the line.
    pub byte_time: Picoseconds,
    /// What a bit takes from the NIC to the card, or back.
    pub link_delay: Picoseconds,
    /// How long it takes for what it does.
    pub latency: Latency,
    /// Weights of the classes that share the line.
    pub classes: Vec<u64>,
    /// Who it tells of congestion.
    pub notification_point: NotificationPoint,
    /// What it does when it is told.
    pub reaction_point: ReactionPoint,
    /// What it does that a clean one does not.
    pub faults: Vec<Fault>,
}

impl Config {
    /// Bit/s of the line.
    pub fn line_rate(&self) -> u64 {
        BIT_PICOSECONDS / self.byte_time.max(1)
    }
}
