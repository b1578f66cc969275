// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was lost, how that was found, and what was done about it.

use serde::{Deserialize, Serialize};

use super::{Cite, Rule, Verb};

/// How it was found that a packet was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// A NAK: PSN sequence error.
    SequenceNak,
    /// A NAK: receiver not ready. Nothing was lost.
    NotReady,
    /// The requester saw it in the responses.
    ImpliedNak,
    /// No answer for as long as the timer runs.
    Timeout,
    /// Not by the end of the capture.
    NotYet,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Found::SequenceNak => "NAK, sequence error",
            Found::NotReady => "NAK, receiver not ready",
            Found::ImpliedNak => "implied NAK",
            Found::Timeout => "timeout",
            Found::NotYet => "not by the end",
        })
    }
}

/// Where the packet was lost that had to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "where", content = "packet")]
pub enum Lost {
    /// It never came to where the capture was taken.
    Before,
    /// There: an event dropped or broke it, or it came broken.
    Here(u64),
    /// Behind: it had come by whole.
    Behind(u64),
    /// It had come, and its acknowledgement was lost where the capture was taken.
    Answer(u64),
    /// Nothing was: the receiver was not ready.
    Nothing,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Before => f.write_str("before the capture"),
            Lost::Here(n) => write!(f, "here, packet {n}"),
            Lost::Behind(n) => write!(f, "behind, packet {n}"),
            Lost::Answer(n) => write!(f, "its answer here, packet {n}"),
            Lost::Nothing => f.write_str("nothing"),
        }
    }
}

/// A time that a requester went back, or should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The flow of requests.
    pub connection: u32,
    /// What the first request that was sent again asks for.
    pub verb: Verb,
    /// The PSN that was missing.
    pub psn: u32,
    /// The same relative to the first PSN of the connection.
    pub position: i64,
    /// Where it was lost.
    pub lost: Lost,
    /// How that was found.
    pub found: Found,
    /// The packet that came too early and so told of it.
    pub out_of_order: Option<Cite>,
    /// The NAK; of a read, the request that asks again.
    pub nak: Option<Cite>,
    /// The first packet that was sent again; of a read with an implied NAK, the first response.
    pub again: Option<Cite>,
    /// The PSN from which was sent again, relative to the first.
    pub from: Option<i64>,
    /// Requests that were sent again.
    pub requests: u32,
    /// From the packet out of order to the NAK, ns, as seen at the capture.
    pub generation_ns: Option<u64>,
    /// From the NAK to the first packet that was sent again, ns, as seen at the capture.
    pub reaction_ns: Option<u64>,
    /// Timeout: since the packet was last sent or the requester last heard of progress, ns.
    pub waited_ns: Option<u64>,
    /// Timeout: the how-manieth without progress, from 1.
    pub retry: Option<u32>,
    /// At the generating end: least round trip from the capture, ns.
    pub generation_round_trip_ns: Option<u64>,
    /// At the reacting end: least round trip from the capture, ns.
    pub reaction_round_trip_ns: Option<u64>,
    /// Rules that were not kept on the way.
    pub broken: Vec<Rule>,
}

impl Recovery {
    /// The first packet that tells of it.
    pub fn first_packet(&self) -> u64 {
        let cites = [self.out_of_order, self.nak, self.again];
        cites.iter().flatten().map(|c| c.packet).min().unwrap_or(0)
    }
}
