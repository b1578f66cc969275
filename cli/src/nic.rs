// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model NIC as a participant of the virtual card's calendar.

use midwire_endpoints::rnic::{self, Plug};
use midwire_virtual_card::{Frame, INPUT_START, Participant, Picoseconds, Result};

/// A model NIC at the end of its cable.
pub struct Nic {
    plug: Plug,
    delay: Picoseconds,
    sent: Vec<rnic::Frame>,
}

impl Nic {
    /// Its traffic begins with the inputs.
    pub fn new(plug: Plug) -> Self {
        plug.bed().start(INPUT_START);
        let delay = plug.bed().nic(plug.port()).config().link_delay;
        Self {
            plug,
            delay,
            sent: Vec::new(),
        }
    }
}

impl Participant for Nic {
    fn next(&self) -> Option<Picoseconds> {
        self.plug.bed().nic(self.plug.port()).next()
    }

    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()> {
        let port = self.plug.port();
        self.plug.bed().advance(port, to, &mut self.sent);
        sent.extend(self.sent.drain(..).map(|frame| Frame {
            at: frame.at + self.delay,
            data: frame.data,
            bad: frame.bad,
        }));
        Ok(())
    }

    fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<()> {
        let Frame { at, data, bad } = frame;
        let frame = rnic::Frame { at, data, bad };
        let port = self.plug.port();
        self.plug.bed().receive(port, end + self.delay, frame);
        Ok(())
    }

    fn link_delay(&self) -> Picoseconds {
        self.delay
    }
}
