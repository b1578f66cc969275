// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flow of requests: who asks whom for what, and how often.

use std::collections::BTreeMap;
use std::net::IpAddr;

use midwire_trace::packet::opcode;
use serde::{Deserialize, Serialize};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Send, Self::Write, Self::Read, Self::Atomic];

    pub(super) fn of(opcode: u8) -> Self {
        match opcode & 0x1f {
            opcode::WRITE_FIRST..=opcode::WRITE_ONLY_IMMEDIATE => Self::Write,
            opcode::READ_REQUEST => Self::Read,
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => Self::Atomic,
            _ => Self::Send,
        }
    }

    /// Its answer carries data, so that the requester can tell what is missing.
    pub(super) fn awaits_data(self) -> bool {
        matches!(self, Self::Read | Self::Atomic)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verb::Send => "send",
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::Atomic => "atomic",
        })
    }
}

/// Packets of reliable connections, and notifications of congestion.
pub(super) fn is_reliable(code: u8) -> bool {
    code >> 5 == 0 || code == opcode::CNP
}

/// Packets from the responder: read responses, acknowledgements, answers to atomic operations.
pub(super) fn is_response(opcode: u8) -> bool {
    matches!(
        opcode & 0x1f,
        opcode::READ_RESPONSE_FIRST..=opcode::ATOMIC_ACK
    )
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair; unknown when nothing was seen that went there.
    pub qp: Option<u32>,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.qp {
            Some(qp) => write!(f, "{} QP {qp:#x}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// Packets of an exchange, as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests, each packet of a message counted.
    pub requests: u64,
    /// Of these, the ones that were sent again.
    pub again: u64,
    /// Bytes of payload of requests and responses, what was sent again included.
    pub bytes: u64,
    /// Read responses and answers to atomic operations.
    pub responses: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// NAKs: PSN sequence error.
    pub sequence_naks: u64,
    /// NAKs: receiver not ready.
    pub not_ready: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Implied NAKs.
    pub implied_naks: u64,
    /// Packets with a request of which the responder saw that one before was missing.
    pub out_of_sequence: u64,
}

/// A flow of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its number, in order of appearance of all directions to a queue pair.
    pub number: u32,
    /// Who asks.
    pub requester: End,
    /// Who answers.
    pub responder: End,
    /// Packets of requests by what they ask for.
    pub verbs: BTreeMap<Verb, u64>,
    /// First PSN.
    pub first_psn: u32,
    /// Number of the packet with the first request.
    pub first_packet: u64,
    /// That has MigReq 0.
    pub migration_cleared: bool,
    /// Number of the first packet with an answer that reached the requester, but for NAKs.
    pub first_answer: Option<u64>,
    /// Bytes of payload of a full packet, if one was seen.
    pub mtu: Option<u32>,
    /// Packets counted.
    pub counts: Counts,
    /// Least time from a request to its answer, ns: the round trip from the capture to the
    /// responder.
    pub responder_round_trip_ns: Option<u64>,
    /// Least time from the last answer to the next request of an idle requester, ns: no less than
    /// the round trip from the capture to the requester.
    pub requester_round_trip_ns: Option<u64>,
    /// NAKs that end a connection: packet and syndrome.
    pub refusals: Vec<(u64, u8)>,
}
