// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual time: one calendar that the core and all that is plugged into its ports share.
//!
//! Everybody says when it will act next; time jumps there, and all then run for a span that
//! is shorter than what any link takes to carry a frame, so that nobody can miss a frame that
//! another one sends meanwhile. Results depend on nothing else, in particular not on how fast
//! the machine is.

use crate::error::Result;

/// Picoseconds of virtual time.
pub type Picoseconds = u64;

/// When inputs start, by virtual time.
pub const INPUT_START: Picoseconds = 1_000_000_000_000;

/// The longest span that is run at a stretch.
const MAX_SPAN: Picoseconds = 20_000_000;

/// A frame without FCS, and when it is on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// First bit on the line. For a frame that is sent to the card: not before then.
    pub at: Picoseconds,
    /// The frame from its destination address on.
    pub data: Vec<u8>,
    /// It has a wrong FCS.
    pub bad: bool,
}

/// Something at a port of the card that lives in virtual time: a file, a model NIC, a host.
pub trait Participant: Send {
    /// When it will act next if nothing comes in; `None` for never.
    fn next(&self) -> Option<Picoseconds>;

    /// Runs to just before `to` and adds what it sends to `sent`. A frame's `at` is its time
    /// at the card, thus later than the sending by the link's delay.
    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()>;

    /// Takes a frame that has left the card; `end` is when its last bit left. It arrives after
    /// the link's delay.
    fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<()>;

    /// The least time from a frame's sending to its first bit at the card, or from its last
    /// bit at the card to its arrival. The default is for one who does not answer.
    fn link_delay(&self) -> Picoseconds {
        Picoseconds::MAX
    }

    /// Nothing more will happen at this port; what was taken must be kept now.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The participants at the two ports, and how far they have run.
pub(crate) struct Calendar {
    participants: [Option<Box<dyn Participant>>; 2],
    span: Picoseconds,
    /// Everything that reaches the card before this time is known.
    end: Picoseconds,
    started: bool,
    /// A participant gave up, so that none acts any more.
    failed: bool,
}

impl Calendar {
    pub fn new(participants: [Option<Box<dyn Participant>>; 2]) -> Self {
        let delays = participants.iter().flatten().map(|p| p.link_delay());
        let span = delays.min().unwrap_or(MAX_SPAN).clamp(1, MAX_SPAN);
        Self {
            participants,
            span,
            end: 0,
            started: false,
            failed: false,
        }
    }

    /// Lets the participants act, from `INPUT_START` on.
    pub fn start(&mut self) {
        self.started = true;
    }

    /// When the first participant will act.
    pub fn next(&self) -> Option<Picoseconds> {
        let participants = self.participants.iter().flatten();
        let acting = self.started && !self.failed;
        acting.then(|| participants.filter_map(|p| p.next()).min())?
    }

    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Up to where the card may run.
    pub fn end(&self) -> Picoseconds {
        match self.started {
            true => self.end,
            false => Picoseconds::MAX,
        }
    }

    /// Runs all from `now`, the earliest time that anybody acts at; calls `input` with a port's
    /// index and a frame for it.
    pub fn advance(&mut self, now: Picoseconds, mut input: impl FnMut(usize, Frame)) -> Result<()> {
        self.end = now.saturating_add(self.span);
        if self.failed {
            return Ok(());
        }
        let mut sent = Vec::new();
        for (port, participant) in self.participants.iter_mut().enumerate() {
            if let Some(participant) = participant {
                let advanced = participant.advance(self.end, &mut sent);
                sent.drain(..).for_each(|frame| input(port, frame));
                self.failed |= advanced.is_err();
                advanced?;
            }
        }
        Ok(())
    }

    /// Hands a frame that has left the card to the participant at a port.
    pub fn deliver(&mut self, port: usize, frame: Frame, end: Picoseconds) -> Result<()> {
        match &mut self.participants[port] {
            Some(participant) => participant.receive(frame, end),
            None => Ok(()),
        }
    }

    /// Tells all that this was it.
    pub fn finish(&mut self) -> Result<()> {
        self.participants
            .iter_mut()
            .flatten()
            .try_for_each(|p| p.finish())
    }
}
