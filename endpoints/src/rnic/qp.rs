// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both halves of a queue pair share.

use midwire_trace::Psn;
use midwire_trace::build::Path;
use midwire_trace::packet::ack_timeout_ns;

use super::{Counters, Latency, Picoseconds};
use crate::payload::Stream;

/// A queue pair: what its two ends have told each other.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// Its number here and at the peer, 24 bits.
    pub number: u32,
    /// Number of the peer's queue pair.
    pub peer: u32,
    /// PSN of its first request, and of the peer's.
    pub first_psn: Psn,
    /// PSN of the peer's first request.
    pub peer_psn: Psn,
    /// From here to the peer.
    pub path: Path,
    /// Most bytes of payload in a packet: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// The acknowledgement timer runs for 4.096 µs · 2^timeout; 0: without end.
    pub timeout: u8,
    /// Times that a packet is sent again before the queue pair fails, 0 to 7.
    pub retries: u8,
    /// The same for a receiver that is not ready; 7: without end.
    pub rnr_retries: u8,
    /// Code of the time that an RNR NAK asks for, 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics that wait for their responses at a time.
    pub max_reads: usize,
    /// Address at which the memory begins that the peer may reach.
    pub region: u64,
    /// Bytes of it.
    pub region_bytes: u64,
    /// Its key.
    pub key: u32,
    /// Names the streams of bytes that both ends know.
    pub seed: u64,
    /// Number of the queue pair in the traffic.
    pub index: u32,
    /// Receives that are posted at the beginning.
    pub receives: u64,
    /// How long it takes until a receive that was used up is posted again.
    pub repost: Picoseconds,
    /// Class of the transmission scheduler.
    pub class: usize,
    /// It opens: it has the work, and the peer answers.
    pub opens: bool,
}

impl QpConfig {
    pub(super) fn timeout(&self) -> Option<Picoseconds> {
        ack_timeout_ns(self.timeout).map(|ns| ns * 1000)
    }

    /// The bytes that requests of this end carry, or that their responses bring.
    pub(super) fn stream(&self, sent: bool) -> Stream {
        Stream::new(self.seed, self.index, sent == self.opens)
    }
}

/// What a packet or a timer meets at the NIC.
pub(super) struct Context<'a> {
    pub now: Picoseconds,
    pub latency: &'a Latency,
    pub counters: &'a mut Counters,
}

/// A packet before it has a path.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub opcode: u8,
    pub psn: u64,
    pub ack_req: bool,
    pub extension: Vec<u8>,
    pub payload: Vec<u8>,
}

/// Opcodes of the packets of a message, by their place in it.
pub(super) struct Opcodes {
    pub first: u8,
    pub middle: u8,
    pub last: u8,
    pub only: u8,
}

impl Opcodes {
    /// Of the packet that begins the message or not, and ends it or not.
    pub fn at(&self, begins: bool, ends: bool) -> u8 {
        match (begins, ends) {
            (true, true) => self.only,
            (true, false) => self.first,
            (false, false) => self.middle,
            (false, true) => self.last,
        }
    }
}

/// Packets of a message.
pub(super) fn packets(length: u64, mtu: u64) -> u64 {
    length.div_ceil(mtu).max(1)
}
