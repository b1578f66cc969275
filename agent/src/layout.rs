// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where messages are in the memory of a queue pair, and what is in them. Both ends have the same
//! layout: words for atomic operations, messages that go out, and messages that come in.
//!
//! Messages have slots. Where there are too many for that they take them in turn, so that millions
//! need little more memory than those under way. Before a slot takes a message, the first byte of
//! each packet in it is made wrong: a packet that never comes shows.

use midwire_endpoints::payload::Stream;
use midwire_endpoints::rnic::{Operation, RdmaTransfer};

use crate::verbs::Memory;

/// Bytes of a word.
pub const WORD: usize = 8;
const ALIGNMENT: usize = 64;
/// Bytes of messages one way: with fewer, each message has a slot of its own; and most of a queue
/// pair.
const FEW: u64 = 16 << 20;
const MOST: u64 = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Layout {
    messages: u64,
    slots: u64,
    size: usize,
    mtu: usize,
    /// Each message under way has a slot of its own.
    own_slots: bool,
}

/// What is to be in the messages that an end of a queue pair sends.
pub type Content = Stream;

impl Layout {
    pub fn of(transfer: &RdmaTransfer) -> Self {
        let turn = transfer.operations.len() as u64;
        let receives = match transfer.operations.contains(&Operation::Send) {
            true => transfer.receives.saturating_mul(turn),
            false => 0,
        };
        let wanted = transfer.tx_depth.max(receives).min(transfer.messages);
        let size = transfer.size.max(1);
        let few = FEW / size.saturating_mul(transfer.qps.max(1).into());
        let slots = wanted
            .min(MOST / size)
            .max(few)
            .clamp(1, transfer.messages.max(1));
        Self {
            messages: transfer.messages,
            slots,
            size: usize::try_from(transfer.size).unwrap_or(usize::MAX),
            mtu: transfer.mtu.max(1) as usize,
            own_slots: slots >= wanted,
        }
    }

    fn words(&self) -> usize {
        (self.slots as usize * WORD).next_multiple_of(ALIGNMENT)
    }

    fn one_way(&self) -> usize {
        (self.slots as usize * self.size).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of a queue pair.
    pub fn bytes(&self) -> usize {
        self.words() + 2 * self.one_way()
    }

    /// The slot of a message.
    pub fn slot(&self, message: u64) -> u64 {
        message % self.slots
    }

    /// The last of so many messages that each had a slot.
    pub fn last(&self, messages: u64) -> impl Iterator<Item = u64> {
        messages.saturating_sub(self.slots)..messages
    }

    /// Where the word of an atomic operation comes back to.
    pub fn word(&self, message: u64) -> usize {
        self.slot(message) as usize * WORD
    }

    /// Where a message goes out.
    pub fn outgoing(&self, message: u64) -> usize {
        self.words() + self.slot(message) as usize * self.size
    }

    /// Where a message comes in.
    pub fn incoming(&self, message: u64) -> usize {
        self.outgoing(message) + self.one_way()
    }

    /// Writes what goes out, for the queue pair whose memory begins at `start`.
    pub fn fill(&self, memory: &Memory, start: usize, content: Content) {
        let mut bytes = vec![0; self.size];
        for slot in 0..self.slots {
            content.fill(slot * self.size as u64, &mut bytes);
            memory.write(start + self.outgoing(slot), &bytes);
        }
    }

    /// The first byte of each packet of a message: its place and what is to be there.
    fn marks(&self, message: u64, content: Content) -> impl Iterator<Item = (usize, u8)> {
        let slot = self.slot(message);
        let (size, from) = (self.size as u64, self.incoming(message));
        (0..self.size).step_by(self.mtu).map(move |offset| {
            let mut byte = [0];
            content.fill(slot * size + offset as u64, &mut byte);
            (from + offset, byte[0])
        })
    }

    /// Makes a slot wrong before a message comes into it.
    pub fn spoil(&self, memory: &Memory, start: usize, message: u64, content: Content) {
        if self.own_slots {
            let marks = self.marks(message, content);
            marks.for_each(|(at, byte)| memory.write(start + at, &[!byte]));
        }
    }

    /// Packets of a message that did not come. One that has its slot to the end is looked at then.
    pub fn missing(&self, memory: &Memory, start: usize, message: u64, content: Content) -> u64 {
        let wrong = |(at, byte): &(usize, u8)| {
            let mut found = [0];
            memory.read(start + at, &mut found);
            found[0] != *byte
        };
        match message + self.slots < self.messages {
            true => self.marks(message, content).filter(wrong).count() as u64,
            false => 0,
        }
    }

    /// Wrong bytes in the slots of messages.
    pub fn wrong_bytes(
        &self,
        memory: &Memory,
        start: usize,
        messages: impl Iterator<Item = u64>,
        content: Content,
    ) -> u64 {
        let mut slots = vec![false; self.slots as usize];
        messages.for_each(|message| slots[self.slot(message) as usize] = true);
        let (mut found, mut wanted) = (vec![0; self.size], vec![0; self.size]);
        let mut wrong = 0;
        for (slot, _) in (0..).zip(slots).filter(|(_, used)| *used) {
            memory.read(start + self.incoming(slot), &mut found);
            content.fill(slot * self.size as u64, &mut wanted);
            wrong += found.iter().zip(&wanted).filter(|(a, b)| a != b).count() as u64;
        }
        wrong
    }
}
