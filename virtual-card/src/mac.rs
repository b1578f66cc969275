// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a MAC does between a line and the core: frames become beats and beats become frames,
//! at the line's pace.

use crate::calendar::{Frame, Picoseconds};
use crate::core::{Core, Width};
use midwire_trace::Port;
pub(crate) use midwire_trace::units::MIN_FRAME;
use midwire_trace::units::{FCS, GAP, PREAMBLE, line_bytes};
use std::collections::VecDeque;

/// A frame longer than that on a TAP or in a file is nonsense.
pub(crate) const MAX_FRAME: usize = 1 << 16;

/// What a frame takes on the line, with its preamble, FCS and gap.
pub(crate) fn line_time(width: Width, bytes: usize) -> Picoseconds {
    line_bytes(bytes) * width.byte_ps()
}

/// Never.
pub(crate) const NEVER: Picoseconds = Picoseconds::MAX;

/// How beats follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cadence {
    /// As a line of this rate brings them.
    Line,
    /// A beat in each clock, the shortest gap between frames that a line could bring: the
    /// fewest clocks to simulate.
    Dense,
}

/// A port's way in.
pub(crate) struct Receive {
    port: Port,
    width: Width,
    cadence: Cadence,
    queue: VecDeque<Frame>,
    /// Bytes of the first frame that the core has.
    sent: usize,
    /// When the first frame's preamble began.
    begun: Picoseconds,
    /// When the line can begin with another frame.
    free: Picoseconds,
    /// When the next beat is complete; `NEVER` when no frame waits.
    pub due: Picoseconds,
}

impl Receive {
    pub fn new(port: Port, width: Width, cadence: Cadence) -> Self {
        let queue = VecDeque::new();
        Self {
            port,
            width,
            cadence,
            queue,
            sent: 0,
            begun: 0,
            free: 0,
            due: NEVER,
        }
    }

    /// Takes a frame; frames keep their order.
    pub fn push(&mut self, frame: Frame) {
        if frame.data.is_empty() {
            return;
        }
        self.queue.push_back(frame);
        if self.queue.len() == 1 {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let Some(frame) = self.queue.front() else {
            self.due = NEVER;
            return;
        };
        self.sent = 0;
        self.begun = self.free.max(frame.at);
        let len = frame.data.len();
        match self.cadence {
            Cadence::Line => self.free = self.begun.saturating_add(line_time(self.width, len)),
            Cadence::Dense => {
                let beats = |len: usize| len.div_ceil(self.width.bytes()) as u64;
                let clock = self.width.clock_ps();
                let gap = beats((PREAMBLE + FCS + GAP) as usize);
                let shortest = line_time(self.width, MIN_FRAME).div_ceil(clock);
                let clocks = (beats(len) + gap).max(shortest);
                self.free = self.begun.saturating_add(clocks * clock);
            }
        }
        self.schedule();
    }

    fn schedule(&mut self) {
        let Some(frame) = self.queue.front() else {
            return;
        };
        let end = frame.data.len().min(self.sent + self.width.bytes()) as u64;
        self.due = match self.cadence {
            Cadence::Line => {
                let bytes = PREAMBLE + end;
                self.begun.saturating_add(bytes * self.width.byte_ps())
            }
            // Whatever is there is due.
            Cadence::Dense if self.sent > 0 => 0,
            Cadence::Dense => self.begun,
        };
    }

    /// Puts the beat that is due on the core's input; returns its bits of tvalid, tlast and
    /// tuser, and the length of the frame if it is the last beat.
    #[inline]
    pub fn drive(&mut self, core: &mut Core, now: Picoseconds) -> Option<Beat> {
        if self.due > now {
            return None;
        }
        let frame = self.queue.front()?;
        let end = frame.data.len().min(self.sent + self.width.bytes());
        core.set_s_axis_tdata(self.port, &frame.data[self.sent..end]);
        let last = end == frame.data.len();
        let beat = Beat {
            last,
            bad: last && frame.bad,
            frame_bytes: frame.data.len(),
        };
        self.sent = end;
        match last {
            true => {
                self.queue.pop_front();
                self.begin();
            }
            false => self.schedule(),
        }
        Some(beat)
    }

    /// Gives up a frame that the core has in part, for it was reset; true if there was one.
    pub fn abort(&mut self) -> bool {
        let part = self.sent > 0;
        if part {
            self.queue.pop_front();
            self.begin();
        }
        part
    }
}

/// A beat that was put on an input.
pub(crate) struct Beat {
    pub last: bool,
    pub bad: bool,
    pub frame_bytes: usize,
}

/// A port's way out.
pub(crate) struct Transmit {
    port: Port,
    width: Width,
    data: Vec<u8>,
    begun: Picoseconds,
    /// When the line has carried all that the MAC took.
    free: Picoseconds,
    /// Frames that had a beat too late for the line.
    pub underruns: u64,
    late: bool,
}

impl Transmit {
    pub fn new(port: Port, width: Width) -> Self {
        Self {
            port,
            width,
            data: Vec::new(),
            begun: 0,
            free: 0,
            underruns: 0,
            late: false,
        }
    }

    /// Whether the MAC has room for a beat: it holds two.
    pub fn ready(&self, now: Picoseconds) -> bool {
        self.free <= now + 2 * self.width.bytes() as u64 * self.width.byte_ps()
    }

    /// Takes the beat on the core's output; returns a frame that is whole, and when its last
    /// bit leaves.
    #[inline]
    pub fn take(
        &mut self,
        core: &Core,
        now: Picoseconds,
        last: bool,
        bad: bool,
    ) -> Option<(Frame, Picoseconds)> {
        let beat = core.m_axis_tdata(self.port);
        let byte = self.width.byte_ps();
        if self.data.is_empty() {
            self.begun = self.free.max(now);
            self.free = self.begun + PREAMBLE * byte;
            self.late = false;
        } else if self.free < now {
            self.late = true;
            self.free = now;
        }
        self.free += beat.len() as u64 * byte;
        self.data.extend_from_slice(beat);
        if !last {
            return None;
        }
        self.underruns += u64::from(self.late);
        let end = self.free + FCS * byte;
        self.free = end + GAP * byte;
        let capacity = self.data.capacity();
        let data = std::mem::replace(&mut self.data, Vec::with_capacity(capacity));
        Some((
            Frame {
                at: self.begun,
                data,
                bad,
            },
            end,
        ))
    }

    /// Gives up a frame that is there in part: the core was reset.
    pub fn abort(&mut self) {
        self.data.clear();
    }
}
