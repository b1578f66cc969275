// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts whose agents send RDMA messages. They come up and make their queue pairs before there is
//! a card between them, so that it can be told of these; their clocks go on when it is there.

use std::panic::resume_unwind;
use std::thread;

use super::{Pair, REACTION, index};
use crate::agent::Session;
use crate::rnic::Picoseconds;
use crate::{Error, Port};

/// In a host's directory, its agent, and what that had to say besides.
pub(super) const AGENT: &str = "agent";
pub(super) const STDERR: &str = "agent.stderr";

/// How far hosts go at a time while there is no card.
const STEP: Picoseconds = 10_000_000;

/// A request as a line for a host's first process. That looks for the first space of it, and takes
/// the square of the time when it is far away.
pub(super) fn line(request: &str) -> String {
    request.replacen('{', "{ ", 1)
}

impl Pair {
    /// Lets hosts that have agents come to where the session rests. What they send meanwhile is
    /// lost, for nothing is plugged in.
    pub fn prepare(&mut self, session: Session) -> Result<(), Error> {
        self.tasks.use_agents();
        self.begin(0);
        self.session = Some(session);
        // The thread that advances them stays on their core, and has to be another one later.
        let advanced = thread::scope(|scope| {
            let thread = scope.spawn(|| self.advance_to_rest());
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        self.entered = false;
        self.ahead = Some(advanced?);
        Ok(())
    }

    fn advance_to_rest(&mut self) -> Result<Picoseconds, Error> {
        let mut lost = Vec::new();
        while !self.session.as_ref().is_some_and(Session::rests) {
            let next = self.next_of_any().filter(|next| *next < self.tasks.end);
            let next = next.ok_or_else(|| {
                self.hosts[index(Port::A)].broken("agents did not get ready in time")
            })?;
            for port in Port::ALL {
                self.advance(port, next + STEP, &mut lost)?;
            }
            lost.clear();
        }
        Ok(self.next_of_any().unwrap_or(self.tasks.end))
    }

    /// When any host does something next.
    fn next_of_any(&self) -> Option<Picoseconds> {
        let next = Port::ALL.into_iter().filter_map(|port| self.next(port));
        next.min()
    }

    /// Lets the session go on, now that the card is there.
    pub(super) fn go_on(&mut self, at: Picoseconds) {
        let resting = self.session.as_mut().filter(|session| session.rests());
        for (on, text) in resting.map(Session::go_on).unwrap_or_default() {
            self.hosts[index(on)].order(at + REACTION, &line(&text));
        }
    }

    /// What the hosts' agents have said, when they have any.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }
}
