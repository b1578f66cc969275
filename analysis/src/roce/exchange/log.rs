// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of one direction of an exchange that were seen last.

use std::collections::VecDeque;

use midwire_trace::packet::opcode;

use crate::roce::{Cite, Lost, Observed};

/// Packets of either direction that can still be cited when they are sent again.
const REMEMBERED: usize = 1024;

/// The packets seen last, for citing them.
#[derive(Default)]
pub struct Log {
    entries: VecDeque<Logged>,
}

#[derive(Clone, Copy)]
pub struct Logged {
    psn: i64,
    pub cite: Cite,
    pub delivered: bool,
    /// An acknowledgement, not a packet of its own PSN.
    ack: bool,
}

impl Log {
    pub fn push(&mut self, psn: i64, p: &Observed) {
        let ack = p.roce.bth.opcode & 0x1f == opcode::ACK;
        if self.entries.len() == REMEMBERED {
            self.entries.pop_front();
        }
        self.entries.push_back(Logged {
            psn,
            cite: p.cite(),
            delivered: p.is_taken(),
            ack,
        });
    }

    /// The number of the packet seen last.
    pub fn latest(&self) -> Option<u64> {
        self.entries.back().map(|e| e.cite.packet)
    }

    /// The last time that the packet with a PSN was seen.
    pub fn last(&self, psn: i64) -> Option<Logged> {
        let mut latest = self.entries.iter().rev();
        latest.find(|e| e.psn == psn && !e.ack).copied()
    }

    /// The first packet behind a PSN that was delivered after that was last seen.
    pub fn first_behind(&self, psn: i64) -> Option<Cite> {
        let behind = |e: &&Logged| e.psn > psn && e.delivered;
        let latest = self.entries.iter().rev();
        let later = latest.take_while(|e| e.psn != psn || e.ack);
        later.filter(behind).last().map(|e| e.cite)
    }

    /// The last packet behind a PSN that was delivered.
    pub fn last_behind(&self, psn: i64) -> Option<Cite> {
        let mut latest = self.entries.iter().rev();
        latest.find(|e| e.psn > psn && e.delivered).map(|e| e.cite)
    }

    /// Where a PSN was lost that is sent again.
    pub fn lost(&self, psn: i64) -> Lost {
        match self.last(psn) {
            None => Lost::Before,
            Some(e) if e.delivered => Lost::Behind(e.cite.packet),
            Some(e) => Lost::Here(e.cite.packet),
        }
    }
}
