// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan expects of the device under test.

use std::fmt;

use midwire_analysis::roce::Rule;
use midwire_endpoints::Port;
use midwire_trace::Lane;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, Numbers, lane_schema, one};

/// What the device under test has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// How the traffic ends.
    Traffic(TrafficOutcome),
    /// A packet is sent again.
    Retransmission(RetransmissionExpectation),
    /// How many packets are sent again.
    Retransmissions(RetransmissionCount),
    /// What a model NIC has counted.
    Counter(CounterExpectation),
    /// What the analysis of RoCE finds fault with.
    Findings(FindingsExpectation),
    /// How long RDMA messages take.
    Completion(CompletionExpectation),
}

/// How the traffic ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficOutcome {
    /// Every entry ends by itself and without error, and every byte arrives as it was sent.
    Completes,
    /// At least one entry fails or runs into the time limit.
    Fails,
}

/// A packet that has to be sent again. At most one of `packet` and `byte`; neither: any packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetransmissionExpectation {
    /// Connection, from 0.
    #[serde(default)]
    pub connection: u32,
    /// Direction of the packet; either by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "lane_schema")]
    pub direction: Option<Lane>,
    /// The n-th segment of new data, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub packet: Option<u32>,
    /// The segment that covers this byte of the stream, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// At most this long after the packet was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Duration>,
    /// What made the sender do it.
    #[serde(default)]
    pub cause: ExpectedCause,
}

/// What made the sender send again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedCause {
    /// Whatever it was.
    #[default]
    Any,
    /// Duplicate or selective acknowledgements.
    Fast,
    /// The retransmission timer.
    Timeout,
    /// A tail loss probe.
    TailProbe,
}

impl fmt::Display for ExpectedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExpectedCause::Any => "any",
            ExpectedCause::Fast => "fast",
            ExpectedCause::Timeout => "timeout",
            ExpectedCause::TailProbe => "tail-probe",
        })
    }
}

/// How many packets of a connection are sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetransmissionCount {
    /// Connection, from 0.
    #[serde(default)]
    pub connection: u32,
    /// Direction of the packets; both by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "lane_schema")]
    pub direction: Option<Lane>,
    /// Not fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// Not more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

/// How often the analysis of RoCE finds fault with the NICs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingsExpectation {
    /// The rule that is not kept; any one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Not less often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// Not more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

/// RDMA messages that have to complete in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionExpectation {
    /// Entry of the traffic, from 1. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub traffic: u32,
    /// Queue pairs of the entry, from 0. Default all.
    #[serde(default = "Numbers::all")]
    pub queue_pairs: Numbers,
    /// What each of their messages takes at most.
    pub within: Duration,
}

/// A counter of a model NIC or of Soft-RoCE that has to be within bounds at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterExpectation {
    /// Endpoint whose counter it is.
    pub endpoint: Port,
    /// Its name, such as packet_seq_err.
    pub name: String,
    /// Not less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u64>,
    /// Not more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}
