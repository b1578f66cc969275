// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both halves of a queue pair share.

use midwire_trace::Psn;
use midwire_trace::build::Path;

use super::{MICROSECOND, Picoseconds};
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
        // 4.096 µs (9.7.6.1.3).
        (self.timeout != 0).then(|| 4_096_000 << self.timeout.min(31))
    }

    /// The bytes that requests of this end carry, or that their responses bring.
    pub(super) fn stream(&self, sent: bool) -> Stream {
        Stream::new(self.seed, self.index, sent == self.opens)
    }
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

/// Packets of a message.
pub(super) fn packets(length: u64, mtu: u64) -> u64 {
    length.div_ceil(mtu).max(1)
}

/// Syndromes of an AETH (InfiniBand specification, volume 1, 9.7.5.2).
pub(super) mod syndrome {
    pub const CLASS: u8 = 0xe0;
    pub const ACK: u8 = 0x00;
    /// No credits are told.
    pub const NO_CREDITS: u8 = 0x1f;
    pub const RNR: u8 = 0x20;
    pub const SEQUENCE: u8 = 0x60;
    pub const INVALID_REQUEST: u8 = 0x61;
    pub const REMOTE_ACCESS: u8 = 0x62;
}

/// The time that an RNR NAK asks for (InfiniBand specification, volume 1, table 45).
pub(super) fn rnr_time(syndrome: u8) -> Picoseconds {
    const TENS_OF_MICROSECONDS: [u64; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    TENS_OF_MICROSECONDS[usize::from(syndrome & 0x1f)] * 10 * MICROSECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_not_ready_times_are_those_of_the_specification() {
        for (code, microseconds) in [(0, 655_360), (1, 10), (12, 640), (14, 1280), (31, 491_520)] {
            assert_eq!(rnr_time(0x20 | code), microseconds * MICROSECOND);
        }
    }
}
