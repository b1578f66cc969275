// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What NICs say that they counted, against what the capture shows.
//!
//! For each counter the capture gives the least and the most that it can be. They are the same
//! where the packets leave no choice; where a NIC may count a packet or not, as a NAK that tells
//! nothing new, they differ. What a NIC took is not known when it says that it discarded packets
//! or, if it has no counter of that, when some seem to be lost behind the capture: its counters of
//! what it took are then left out.

use std::net::IpAddr;

use midwire_trace::packet::opcode;
use serde::{Deserialize, Serialize};

use super::settings::NicSettings;
use super::{Finding, Observed, Rule, Verb};

/// Some packets: how many, and which.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    count: u64,
    /// The first and the last.
    ends: Option<[u64; 2]>,
}

impl Tally {
    /// Counts a packet by its number.
    pub fn add(&mut self, number: u64) {
        self.count += 1;
        let [first, last] = self.ends.unwrap_or([number; 2]);
        self.ends = Some([first.min(number), last.max(number)]);
    }

    fn and(self, other: Self) -> Self {
        let ends = [self.ends, other.ends].into_iter().flatten();
        Self {
            count: self.count + other.count,
            ends: ends.reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])]),
        }
    }
}

macro_rules! tallies {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What one end did and met.
        #[derive(Clone, Debug, Default)]
        pub(super) struct Tallies {
            $($(#[$doc])* pub $name: Tally),+
        }

        impl Tallies {
            fn and(self, other: &Self) -> Self {
                Self { $($name: self.$name.and(other.$name)),+ }
            }
        }
    };
}

tallies! {
    /// Packets that it sent.
    sent,
    /// Packets that came to it and were whole.
    received,
    /// Those that were not.
    broken,
    /// Marked packets that came.
    marked,
    /// Notifications that it sent.
    notified,
    /// Notifications that came.
    slowed,
    /// Requests that came ahead of their turn.
    early,
    /// Requests that came again.
    repeated,
    /// WRITEs that began, and the ones of them that came again.
    writes,
    writes_again,
    /// READs, and the ones of them that came again.
    reads,
    reads_again,
    /// Atomic operations, and the ones of them that came again.
    atomics,
    atomics_again,
    /// NAKs that it sent: receiver not ready.
    not_ready,
    /// NAKs that came: sequence error; and those of them that told something new.
    naks,
    new_naks,
    /// NAKs that came: receiver not ready.
    unready,
    /// NAKs that came: invalid request.
    invalid,
    /// NAKs that came: remote access error.
    denied,
    /// Answers that came ahead of one that was awaited.
    ahead,
    /// READs asked for again for such answers.
    implied,
    /// Requests sent again for want of an answer.
    timeouts,
    /// Connections that ended with requests that were not acknowledged.
    open,
    /// Packets that had come by whole on their way to it, and were lost.
    lost,
}

impl Tallies {
    /// A request that comes in its turn, or again.
    pub fn request(&mut self, p: &Observed, verb: Verb, again: bool) {
        if again {
            self.repeated.add(p.number);
        }
        let begins = matches!(
            p.roce.bth.opcode & 0x1f,
            opcode::WRITE_FIRST | opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE
        );
        let tally = match (verb, again) {
            (Verb::Write, false) if begins => &mut self.writes,
            (Verb::Write, true) if begins => &mut self.writes_again,
            (Verb::Read, false) => &mut self.reads,
            (Verb::Read, true) => &mut self.reads_again,
            (Verb::Atomic, false) => &mut self.atomics,
            (Verb::Atomic, true) => &mut self.atomics_again,
            _ => return,
        };
        tally.add(p.number);
    }
}

/// A counter of a NIC, and what the capture shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterCheck {
    /// The NIC.
    pub nic: String,
    /// Name of the counter; of two that share a count, both.
    pub counter: String,
    /// What it says.
    pub says: u64,
    /// The least that the capture allows.
    pub least: u64,
    /// The most that the capture allows; nothing when it sets no bound.
    pub most: Option<u64>,
}

impl CounterCheck {
    /// It is what the capture shows.
    pub fn agrees(&self) -> bool {
        self.says >= self.least && self.most.is_none_or(|most| self.says <= most)
    }

    /// What the capture allows, in words.
    pub fn allowed(&self) -> String {
        match (self.least, self.most) {
            (least, None) => format!("at least {least}"),
            (least, Some(most)) if least == most => most.to_string(),
            (least, Some(most)) => format!("{least} to {most}"),
        }
    }
}

/// A counter, or several that add up, and what it has to be.
struct Expected {
    names: &'static [&'static str],
    /// What the packets of the tally are.
    what: &'static str,
    tally: Tally,
    least: u64,
    most: Option<u64>,
}

/// What the counters of a NIC have to be.
fn expected(t: &Tallies, says: impl Fn(&str) -> Option<u64>) -> Vec<Expected> {
    let exactly = |names, what, tally: Tally| Expected {
        names,
        what,
        tally,
        least: tally.count,
        most: Some(tally.count),
    };
    let between = |names, what, least: u64, tally: Tally| Expected {
        least,
        ..exactly(names, what, tally)
    };
    let at_least = |names, what, tally: Tally| Expected {
        most: None,
        ..exactly(names, what, tally)
    };
    let crc = says("rx_crc_errors_phy").unwrap_or(0);
    let refused = t.not_ready.count > 0;
    let timeouts = t.timeouts.and(t.open);
    let mut all = vec![
        at_least(&["tx_packets_phy"], "packets sent", t.sent),
        at_least(&["sent_pkts"], "packets sent", t.sent),
        exactly(&["np_cnp_sent"], "notifications sent", t.notified),
        exactly(&["cnpSent"], "notifications sent", t.notified),
        between(
            &["rx_icrc_encapsulated"],
            "packets with a wrong ICRC",
            t.broken.count.saturating_sub(crc),
            t.broken,
        ),
        at_least(
            &["out_of_buffer"],
            "NAKs sent, receiver not ready",
            t.not_ready,
        ),
        exactly(
            &["send_rnr_err"],
            "NAKs sent, receiver not ready",
            t.not_ready,
        ),
        between(
            &["rnr_nak_retry_err"],
            "NAKs that came, receiver not ready",
            0,
            t.unready,
        ),
    ];
    let lossy = says("rx_discards_phy").map_or(t.lost.count > 0, |discarded| discarded > 0);
    if lossy {
        return all;
    }
    let early = exactly(
        &["out_of_sequence"],
        "requests ahead of their turn",
        t.early,
    );
    let repeated = exactly(
        &["duplicate_request"],
        "requests that came again",
        t.repeated,
    );
    all.extend([
        at_least(&["rx_packets_phy"], "packets that came", t.received),
        at_least(&["rcvd_pkts"], "packets that came", t.received),
        exactly(&["np_ecn_marked_roce_packets"], "marked packets", t.marked),
        exactly(&["RxECNMrkd"], "marked packets", t.marked),
        exactly(
            &["rp_cnp_handled", "rp_cnp_ignored"],
            "notifications that came",
            t.slowed,
        ),
        between(&["cnpHandled"], "notifications that came", 0, t.slowed),
        // What was refused for want of a receive comes again, and what is behind it too early.
        match refused {
            true => at_least(early.names, early.what, early.tally),
            false => early,
        },
        match refused {
            true => between(repeated.names, repeated.what, 0, repeated.tally),
            false => repeated,
        },
        between(
            &["rx_write_requests"],
            "WRITEs that came",
            t.writes.count,
            t.writes.and(t.writes_again),
        ),
        between(
            &["rx_read_requests"],
            "READs that came",
            t.reads.count,
            t.reads.and(t.reads_again),
        ),
        between(
            &["rx_atomic_requests"],
            "atomic operations that came",
            t.atomics.count,
            t.atomics.and(t.atomics_again),
        ),
        between(
            &["packet_seq_err"],
            "NAKs that came, sequence error",
            t.new_naks.count,
            t.naks,
        ),
        // Not those that acknowledge nothing new.
        between(
            &["rcvd_seq_err"],
            "NAKs that came, sequence error",
            0,
            t.naks,
        ),
        exactly(
            &["rcvd_rnr_err"],
            "NAKs that came, receiver not ready",
            t.unready,
        ),
        // One for all that come ahead of the same one.
        between(
            &["out_of_seq_request"],
            "requests ahead of their turn",
            t.early.count.min(1),
            t.early,
        ),
        between(
            &["completer_retry_err"],
            "NAKs, answers ahead of one due, and timeouts",
            t.timeouts.count,
            timeouts.and(t.naks).and(t.ahead),
        ),
        between(
            &["implied_nak_seq_err"],
            "answers that came ahead of one due",
            t.implied.count,
            t.ahead,
        ),
        between(
            &["local_ack_timeout_err"],
            "timeouts",
            t.timeouts.count,
            timeouts,
        ),
        between(&["roce_adp_retrans"], "timeouts", 0, timeouts),
        between(
            &["req_remote_invalid_request"],
            "NAKs that came, invalid request",
            t.invalid.count.min(1),
            t.invalid,
        ),
        between(
            &["req_remote_access_errors"],
            "NAKs that came, remote access error",
            t.denied.count.min(1),
            t.denied,
        ),
    ]);
    all
}

/// Holds the counters of all NICs against what their ends of the connections did and met.
pub(super) fn check(
    nics: &[NicSettings],
    ends: &[(IpAddr, Tallies)],
) -> (Vec<CounterCheck>, Vec<Finding>) {
    let mut checks = Vec::new();
    let mut findings = Vec::new();
    for nic in nics {
        let own = ends.iter().filter(|(at, _)| nic.addresses.contains(at));
        let tallies = own.fold(Tallies::default(), |sum, (_, tallies)| sum.and(tallies));
        let says = |name: &str| nic.counters.get(name).copied();
        for expected in expected(&tallies, says) {
            // One of several may be missing: then it counts nothing.
            let told: Vec<u64> = expected
                .names
                .iter()
                .filter_map(|name| says(name))
                .collect();
            if told.is_empty() {
                continue;
            }
            let check = CounterCheck {
                nic: nic.name.clone(),
                counter: expected.names.join(" + "),
                says: told.iter().sum(),
                least: expected.least,
                most: expected.most,
            };
            if !check.agrees() {
                findings.push(Finding {
                    rule: Rule::CounterDiffers,
                    connection: None,
                    packets: expected.tally.ends.map_or_else(Vec::new, Vec::from),
                    what: format!(
                        "{} of {} is {}, where the capture has {}: {}",
                        check.counter,
                        check.nic,
                        check.says,
                        check.allowed(),
                        expected.what
                    ),
                });
            }
            checks.push(check);
        }
    }
    (checks, findings)
}
