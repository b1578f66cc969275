// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Linux host on the card's clock: a kernel, its network card, and the console on which its
//! first process takes orders.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use midwire_trace::Nanos;
use midwire_trace::units::{MIN_FRAME, line_bytes};

use super::Config;
use super::clock::{Asked, Clock, NEVER};
use super::device::{Device, Message, RECEIVE, TRANSMIT};
use super::machine::{Machine, Sockets, Stop};
use super::sys::wait_readable;
use crate::rnic::{Frame, Picoseconds};
use crate::{Error, Port};

/// VIRTIO_NET_F_MTU, VIRTIO_NET_F_MAC
const NETWORK_FEATURES: u64 = 1 << 3 | 1 << 5;
/// struct virtio_net_hdr_v1
const NETWORK_HEADER: usize = 12;
const NUM_BUFFERS: usize = 10;

/// How long a host may take for a script at its end, and how far it goes at a time.
const LAST: Picoseconds = 10_000_000_000_000;
const LAST_STEP: Picoseconds = 10_000_000;

/// The console's driver has buffers of a page, and reads them in a while.
const ORDER_BYTES: usize = 2048;
const ORDER_GAP: usize = 20_000_000;

/// How often a kernel that computes is looked at.
const LOOK_MS: u16 = 100;

/// A host's network card and its cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Address of the interface.
    pub mac: [u8; 6],
    /// Longest IP packet.
    pub mtu: u16,
    /// What a byte takes on the line.
    pub byte_time: Picoseconds,
    /// What a bit takes from the network card to the card under it, and back.
    pub delay: Picoseconds,
    /// How long the first frame waits for others before the kernel is interrupted.
    pub coalescing: Picoseconds,
}

/// The host's clock against the card's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// When the kernel starts.
    origin: Picoseconds,
    /// Parts per billion by which it is fast.
    drift_ppb: i64,
}

impl Pace {
    const BILLION: u128 = 1_000_000_000;

    fn ppb(self) -> u128 {
        u128::from(1_000_000_000_u64.saturating_add_signed(self.drift_ppb))
    }

    /// When the host's clock comes to this.
    fn card_time(self, host_ns: u64) -> Picoseconds {
        if host_ns == NEVER {
            return Picoseconds::MAX;
        }
        let elapsed = u128::from(host_ns) * 1000 * Self::BILLION / self.ppb();
        self.origin
            .saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// The first tick of the host's clock that is not before this.
    fn host_time(self, at: Picoseconds) -> u64 {
        let elapsed = u128::from(at.saturating_sub(self.origin)) * self.ppb();
        u64::try_from(elapsed.div_ceil(1000 * Self::BILLION)).unwrap_or(NEVER)
    }
}

/// What happens to a host that waits. At one time frames come before completions, and each in
/// order, whenever they were queued.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Receive(u64, Vec<u8>),
    Interrupt,
    Sent(u64, u16),
    Order(u64, Vec<u8>),
}

pub(super) struct Host {
    port: Port,
    machine: Machine,
    clock: Clock,
    network: Device,
    orders: Device,
    link: Link,
    pace: Pace,
    /// How long a kernel may compute while its clock stands still.
    patience: Duration,
    actions: BinaryHeap<Reverse<(Picoseconds, Action)>>,
    queued: u64,
    /// The kernel computes; otherwise it waits.
    running: bool,
    /// When the line has taken all frames so far.
    line_free: Picoseconds,
    interrupt_due: bool,
    /// What the first process has said, and an unfinished line.
    pub news: Vec<(Picoseconds, String)>,
    heard: Vec<u8>,
    pub sent: u64,
    pub received: u64,
    /// Frames for which the driver had no buffer.
    pub overruns: u64,
}

impl Host {
    pub fn new(
        port: Port,
        (machine, sockets): (Machine, Sockets),
        config: &Config,
    ) -> io::Result<Self> {
        let link = config.link.clone();
        // struct virtio_net_config: mac, status, max_virtqueue_pairs, mtu
        let space = [&link.mac[..], &[0; 4], &link.mtu.to_le_bytes()].concat();
        Ok(Self {
            port,
            machine,
            clock: Clock::new(sockets.clock, config.time_of_day)?,
            network: Device::new(sockets.network, NETWORK_FEATURES, space),
            orders: Device::new(sockets.orders, 0, Vec::new()),
            link,
            pace: Pace {
                origin: 0,
                drift_ppb: config.drift_ppb,
            },
            patience: config.patience,
            actions: BinaryHeap::new(),
            queued: 0,
            running: true,
            line_free: 0,
            interrupt_due: false,
            news: Vec::new(),
            heard: Vec::new(),
            sent: 0,
            received: 0,
            overruns: 0,
        })
    }

    /// Lets its clock begin at this time.
    pub fn begin(&mut self, origin: Picoseconds) {
        self.pace.origin = origin;
    }

    /// The card's time when its clock comes to this.
    pub fn card_time(&self, host_ns: u64) -> Nanos {
        Nanos(self.pace.card_time(host_ns) / 1000)
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn stop(&self) -> Stop {
        self.machine.stop()
    }

    /// Ends it for good.
    pub fn end(&mut self) {
        self.machine.end();
        self.running = false;
        self.actions.clear();
    }

    fn next_action(&self) -> Picoseconds {
        let first = self.actions.peek();
        first.map_or(Picoseconds::MAX, |Reverse((at, _))| *at)
    }

    fn requested(&self) -> io::Result<Picoseconds> {
        Ok(self.pace.card_time(self.clock.requested()?))
    }

    /// When it acts next if nothing comes in.
    pub fn next(&self) -> Picoseconds {
        if self.running {
            return self.pace.origin;
        }
        let requested = self.requested().unwrap_or(Picoseconds::MAX);
        self.next_action().min(requested)
    }

    /// Queues a frame from the card that arrives at this time.
    pub fn receive(&mut self, at: Picoseconds, data: Vec<u8>) {
        self.queue(at, |number| Action::Receive(number, data));
    }

    /// Queues a line for the first process, in pieces that its console has room for.
    pub fn order(&mut self, at: Picoseconds, text: &str) {
        for (at, piece) in (at..)
            .step_by(ORDER_GAP)
            .zip(text.as_bytes().chunks(ORDER_BYTES))
        {
            self.queue(at, |number| Action::Order(number, piece.to_vec()));
        }
    }

    fn queue(&mut self, at: Picoseconds, action: impl FnOnce(u64) -> Action) {
        self.queued += 1;
        self.actions.push(Reverse((at, action(self.queued))));
    }

    /// Runs to just before `end`, and adds what it sends to `sent`.
    pub fn advance(&mut self, end: Picoseconds, sent: &mut Vec<Frame>) -> Result<(), Error> {
        self.run(end, sent).map_err(|error| self.broken(error))
    }

    /// Cuts its cable: nothing reaches it any more, and nothing leaves it.
    pub fn cut_off(&mut self) {
        let completion = |action: &Action| matches!(action, Action::Sent(..));
        self.actions
            .retain(|Reverse((_, action))| completion(action));
    }

    /// Runs a script of a host that was cut off; what it has said, and the time that its
    /// clock has not come to yet.
    pub fn run_script(
        &mut self,
        at: Picoseconds,
        name: &str,
        script: &str,
    ) -> Result<(String, Picoseconds), Error> {
        let directory = self.machine.directory();
        let [sh, out, err] =
            ["sh", "stdout", "stderr"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(sh, script).map_err(Error::host(self.port, "cannot write a script"))?;
        self.news.clear();
        self.order(at, &format!("run {name}\n"));
        let (ended, mut lost, mut now) = (format!("end {name} "), Vec::new(), at);
        while now <= at + LAST {
            now = now.max(self.next()).saturating_add(LAST_STEP);
            self.advance(now, &mut lost)?;
            lost.clear();
            if self.news.iter().any(|(_, line)| line.starts_with(&ended)) {
                let said = [out, err].map(|file| fs::read(file).unwrap_or_default());
                let said = String::from_utf8_lossy(&said.concat()).into_owned();
                return Ok((said, now));
            }
        }
        Err(self.broken(format!("{name}.sh does not come to its end")))
    }

    /// What happened to it, with the end of its console.
    pub fn broken(&self, what: impl ToString) -> Error {
        Error::Guest {
            port: self.port,
            what: what.to_string(),
            console: self.machine.console(),
        }
    }

    fn run(&mut self, end: Picoseconds, sent: &mut Vec<Frame>) -> io::Result<()> {
        loop {
            while self.running {
                self.serve(sent)?;
            }
            let (action, requested) = (self.next_action(), self.requested()?);
            if action.min(requested) >= end {
                return Ok(());
            }
            if action <= requested {
                self.act()?;
            } else {
                let until = self.pace.host_time(end.min(action));
                self.clock.run(self.pace.host_time(requested), until)?;
                self.running = true;
            }
        }
    }

    fn act(&mut self) -> io::Result<()> {
        let Some(Reverse((at, action))) = self.actions.pop() else {
            return Ok(());
        };
        self.clock.set(self.pace.host_time(at))?;
        match action {
            Action::Receive(_, data) => {
                let mut buffer = vec![0; NETWORK_HEADER];
                buffer[NUM_BUFFERS] = 1;
                buffer.extend(data);
                match self.network.give_buffer(&buffer)? {
                    true => self.received += 1,
                    false => self.overruns += 1,
                }
                if self.link.coalescing == 0 {
                    self.network.interrupt(RECEIVE)?;
                } else if !self.interrupt_due {
                    self.interrupt_due = true;
                    self.queue(at + self.link.coalescing, |_| Action::Interrupt);
                }
            }
            Action::Interrupt => {
                self.interrupt_due = false;
                self.network.interrupt(RECEIVE)?;
            }
            Action::Sent(_, head) => {
                self.network.complete(TRANSMIT, head, 0)?;
                self.network.interrupt(TRANSMIT)?;
            }
            Action::Order(_, text) => {
                if !self.orders.give_buffer(&text)? {
                    return Err(io::Error::other("its first process takes no orders"));
                }
                self.orders.interrupt(RECEIVE)?;
            }
        }
        Ok(())
    }

    /// Takes one message of the kernel that computes.
    fn serve(&mut self, sent: &mut Vec<Frame>) -> io::Result<()> {
        let since = Instant::now();
        let ready = loop {
            let fds = [self.clock.fd(), self.network.fd(), self.orders.fd()];
            if let Some(ready) = wait_readable(&fds, LOOK_MS)? {
                break ready;
            }
            if self.machine.has_ended() {
                return Err(io::Error::other("its kernel has ended"));
            }
            if since.elapsed() > self.patience {
                return Err(io::Error::other(format!(
                    "it has computed for {} s while its clock stood still: a program that waits \
                     without ever calling the kernel stops time",
                    self.patience.as_secs()
                )));
            }
        };
        let message = match ready {
            0 => match self.clock.serve()? {
                Asked::Wait => {
                    self.running = false;
                    return Ok(());
                }
                Asked::Served => return Ok(()),
                Asked::Gone => Message::Gone,
            },
            1 => self.network.receive()?,
            _ => self.orders.receive()?,
        };
        match (ready, message) {
            (_, Message::Gone) => return Err(io::Error::other("its kernel has ended")),
            (1, Message::Kick(TRANSMIT)) => {
                self.transmit(sent)?;
                // What the line has to say comes when it is due.
                self.clock.limit(self.pace.host_time(self.next_action()))?;
            }
            (2, Message::Kick(TRANSMIT)) => self.hear()?,
            _ => {}
        }
        match ready {
            1 => self.network.reply(),
            _ => self.orders.reply(),
        }
    }

    /// Puts on the line what the driver sends. A buffer comes back when its last bit has left.
    fn transmit(&mut self, sent: &mut Vec<Frame>) -> io::Result<()> {
        let now = self.pace.card_time(self.clock.now()?);
        while let Some((head, mut data)) = self.network.take_buffer()? {
            data.drain(..NETWORK_HEADER.min(data.len()));
            data.resize(data.len().max(MIN_FRAME), 0);
            let start = self.line_free.max(now);
            self.line_free = start + line_bytes(data.len()) * self.link.byte_time;
            self.queue(self.line_free, |number| Action::Sent(number, head));
            self.sent += 1;
            sent.push(Frame {
                at: start,
                data,
                bad: false,
            });
        }
        Ok(())
    }

    /// Takes what the first process says. The driver waits for its buffer while it sends.
    fn hear(&mut self) -> io::Result<()> {
        let now = self.pace.card_time(self.clock.now()?);
        while let Some((head, data)) = self.orders.take_buffer()? {
            self.orders.complete(TRANSMIT, head, 0)?;
            for byte in data {
                match byte {
                    b'\n' => {
                        let line = std::mem::take(&mut self.heard);
                        self.news
                            .push((now, String::from_utf8_lossy(&line).into_owned()));
                    }
                    other => self.heard.push(other),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_goes_there_and_back() {
        let origin = 1_000_000_000_000;
        for drift_ppb in [0, 20_000, -35_001] {
            let pace = Pace { origin, drift_ppb };
            assert_eq!(pace.card_time(0), origin);
            for ns in [1, 999, 123_456_789, 86_400_000_000_000] {
                assert_eq!(pace.host_time(pace.card_time(ns)), ns, "{drift_ppb}");
                assert!(pace.host_time(pace.card_time(ns) + 1) >= ns, "{drift_ppb}");
            }
        }
        let fast = Pace {
            origin: 0,
            drift_ppb: 1_000_000,
        };
        assert_eq!(fast.host_time(1_000_000_000_000), 1_001_000_000);
    }
}
