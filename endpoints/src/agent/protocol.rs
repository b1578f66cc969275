// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an agent is asked, and what it answers: a JSON object in a line each. It answers every
//! request once, in their order, and speaks unasked only to greet. docs/agent.md describes it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Port;
use crate::rnic::{CompletionTimes, RdmaTransfer};

/// Of the messages.
pub const VERSION: u32 = 2;

/// What an agent is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// To open its NIC.
    Open(Open),
    /// To make queue pairs and memory.
    Prepare(Prepare),
    /// To connect its queue pairs with those of its peer: of each transfer, in their order.
    Connect(Vec<Vec<QueuePair>>),
    /// For its counters.
    Counters {},
    /// To answer the messages of transfers until it is asked to check them.
    Serve(Vec<usize>),
    /// To carry out transfers, all at the same time.
    Run(Vec<usize>),
    /// What has arrived of the transfers that it has served.
    Check(Vec<Check>),
    /// To end.
    Leave {},
}

/// The NIC that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Its name among RDMA devices; the one that has the addresses, or the only one, without it.
    pub device: Option<String>,
    /// The addresses that queue pairs take; all of the NIC without any.
    pub addresses: Vec<IpAddr>,
    /// Command lines for `sh`, which set it up before.
    #[serde(default)]
    pub setup: Vec<String>,
}

/// The queue pairs that are wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    /// The end that it is.
    pub end: Port,
    /// By their numbers from here on.
    pub transfers: Vec<RdmaTransfer>,
    /// First PSN of each queue pair of each transfer.
    pub first_psns: Vec<Vec<u32>>,
    /// Of the contents of its memory.
    pub seed: u64,
    /// How long a transfer may take.
    pub limit_ns: u64,
}

/// What is to be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The transfer.
    pub transfer: usize,
    /// Messages of each queue pair that the end that asks has seen completed.
    pub messages: Vec<u64>,
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is there; said unasked.
    Greeting {
        /// Of the messages that it understands.
        version: u32,
        /// Of the program.
        midwire: String,
    },
    /// Its NIC.
    Opened {
        /// Name among RDMA devices.
        device: String,
        /// Addresses that its queue pairs can take.
        addresses: Vec<IpAddr>,
    },
    /// Its queue pairs: of each transfer, in their order.
    Prepared(Vec<Vec<QueuePair>>),
    /// They are connected.
    Connected {},
    /// Counters by name.
    Counters(BTreeMap<String, u64>),
    /// It answers messages.
    Serving {},
    /// What became of each transfer.
    Ran(Vec<Ran>),
    /// What has arrived of each transfer on each queue pair.
    Checked(Vec<Vec<Arrived>>),
    /// It could not be done.
    Failed(String),
}

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePair {
    /// Its GID, which is an IP address for RoCEv2.
    pub address: IpAddr,
    /// Its number.
    pub number: u32,
    /// PSN of its first request.
    pub first_psn: u32,
    /// Its memory.
    pub memory: u64,
    /// The key to it.
    pub key: u32,
}

/// What became of a transfer at the end that asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// From the first message posted to the last one completed; nothing when it did not end.
    pub duration_ns: Option<u64>,
    /// How long its messages took.
    pub times: Option<CompletionTimes>,
    /// Of each queue pair.
    pub qps: Vec<RanPair>,
}

/// What became of the messages of a queue pair at the end that asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RanPair {
    /// Messages that completed.
    pub messages: u64,
    /// Bytes that it got as the other end has acknowledged, or that came in answer.
    pub arrived: Arrived,
    /// From its first message posted to the last one completed.
    pub duration_ns: Option<u64>,
    /// How long its messages took.
    pub times: Option<CompletionTimes>,
    /// Why messages failed.
    pub error: Option<String>,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// Bytes.
    pub bytes: u64,
    /// Those that were found to be wrong.
    pub wrong_bytes: u64,
}
