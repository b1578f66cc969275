// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be wrong with a NIC, and what is only undocumented: each a switch, as the authors of
//! Lumina saw it (Yu et al., Understanding the Micro-Behaviors of Hardware Offloaded Network
//! Stacks, SIGCOMM 2023). Those NICs may have been mended since.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CnpScope, Config, MICROSECOND, Picoseconds};

/// Something that a clean NIC does not do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A traffic class never gets more than its share of the line, though others are idle (6.2.1).
    EtsNotWorkConserving,
    /// READs take 150 µs to ask again for what was lost, and when 12 queue pairs do so, packets to
    /// all others are discarded (6.2.2).
    NoisyNeighbour,
    /// Sends with MigReq 0 (6.2.3).
    MigReqClear,
    /// Queue pairs whose packets have MigReq 0 begin slowly: of 16 that do so at a time, 64 packets
    /// each are taken in the first 5 ms, and the rest is discarded (6.2.3).
    MigReqSlowStart,
    /// The counter of notifications stands still (6.2.4).
    CnpSentStuck,
    /// The counter of implied NAKs stands still (6.2.4).
    ImpliedNakSeqErrStuck,
    /// Notifications are 50 µs apart at least, whatever was asked (6.3).
    HiddenCnpInterval,
    /// Time-outs and number of retries are its own (6.3).
    AdaptiveRetransmission,
    /// It takes 300 µs to go back after a NAK (6.1).
    SlowNakReaction,
    /// It takes 83 ms to ask again for a READ response that was lost (6.1).
    SlowReadNak,
    /// It takes 10 µs to send a NAK (6.1).
    LateNak,
}

/// A NIC as the authors of Lumina saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Has no fault.
    Clean,
    /// NVIDIA ConnectX-4 Lx.
    Cx4Lx,
    /// NVIDIA ConnectX-5.
    Cx5,
    /// NVIDIA ConnectX-6 Dx.
    Cx6Dx,
    /// Intel E810.
    E810,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 5] = [
        Profile::Clean,
        Profile::Cx4Lx,
        Profile::Cx5,
        Profile::Cx6Dx,
        Profile::E810,
    ];

    /// Its faults.
    pub fn faults(self) -> &'static [Fault] {
        match self {
            Profile::Clean => &[],
            Profile::Cx4Lx => &[
                Fault::NoisyNeighbour,
                Fault::ImpliedNakSeqErrStuck,
                Fault::AdaptiveRetransmission,
                Fault::SlowNakReaction,
            ],
            Profile::Cx5 => &[Fault::MigReqSlowStart, Fault::AdaptiveRetransmission],
            Profile::Cx6Dx => &[Fault::EtsNotWorkConserving, Fault::AdaptiveRetransmission],
            Profile::E810 => &[
                Fault::MigReqClear,
                Fault::CnpSentStuck,
                Fault::HiddenCnpInterval,
                Fault::SlowReadNak,
                Fault::LateNak,
            ],
        }
    }

    /// What it rations notifications by (6.3).
    pub fn cnp_scope(self) -> CnpScope {
        match self {
            Profile::Clean | Profile::Cx5 | Profile::Cx6Dx => CnpScope::Port,
            Profile::Cx4Lx => CnpScope::Ip,
            Profile::E810 => CnpScope::Qp,
        }
    }
}

/// READs in recovery from which on others suffer.
pub(super) const NOISY: usize = 12;
/// Queue pairs that begin slowly, from which on their packets are rationed, how many of one are
/// then taken, and for how long one begins.
pub(super) const SLOW_STARTS: usize = 16;
pub(super) const SLOW_START_PACKETS: u32 = 64;
pub(super) const SLOW_START: Picoseconds = 5_000 * MICROSECOND;
/// Retries that adaptive retransmission adds: of 7 it makes 8 to 13.
pub(super) const MORE_RETRIES: u8 = 3;

const HIDDEN_CNP_INTERVAL: Picoseconds = 50 * MICROSECOND;

/// The n-th time-out in a row under adaptive retransmission, where `timeout` was asked: 67.1 ms
/// became 5.6, 4.1, 8.4, 16.7, 25.1, 67.1 and 134.2 ms.
pub(super) fn adaptive_timeout(timeout: Picoseconds, n: usize) -> Picoseconds {
    const FRACTIONS: [(u64, u64); 7] = [(1, 12), (1, 16), (1, 8), (1, 4), (3, 8), (1, 1), (2, 1)];
    let (times, of) = FRACTIONS[n.min(FRACTIONS.len() - 1)];
    timeout / of * times
}

impl Config {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// With the times that its faults bring.
    pub(super) fn with_times_of_faults(mut self) -> Self {
        let least = |time: &mut Picoseconds, least: Picoseconds| *time = least.max(*time);
        for fault in self.faults.clone() {
            match fault {
                Fault::NoisyNeighbour => least(&mut self.latency.read_again, 150 * MICROSECOND),
                Fault::SlowReadNak => least(&mut self.latency.read_again, 83_000 * MICROSECOND),
                Fault::LateNak => least(&mut self.latency.nak, 10 * MICROSECOND),
                Fault::SlowNakReaction => least(&mut self.latency.go_back, 300 * MICROSECOND),
                Fault::HiddenCnpInterval => least(
                    &mut self.notification_point.min_time_between_cnps,
                    HIDDEN_CNP_INTERVAL,
                ),
                _ => {}
            }
        }
        self
    }
}
