// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulation: clocks the core, with the MACs at its ports, the host's accesses and its
//! DMA, and skips the clocks in which nothing can happen.
//!
//! In wall time the core sees the host's clock and its ports take frames as they come. In
//! virtual time the [`Calendar`] says what comes when. The host is outside virtual time, so
//! these rules keep it from having a say in the results:
//! - When half of the ring's blocks wait for the host they hold the calendar until it has
//!   taken some, so that the ring never gets full because the host is slow.
//! - While the calendar is held, an access to a register makes as many clocks pass as it
//!   takes; everything else goes on meanwhile as if nothing were.
//! - An access begins when the core is idle, if that comes soon, and then time stands still.

use crate::calendar::{Calendar, Frame, INPUT_START, Picoseconds};
use crate::card::Config;
use crate::core::{Core, DMA_BYTES};
use crate::error::Error;
use crate::function::{Function, Request};
use crate::mac::{NEVER, Receive, Transmit};
use crate::stats::{Counters, PortCounters};
use crate::tap;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use midwire_trace::Port;
use midwire_trace::block::{BlockHeader, HEADER_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What reaches the simulation from other threads.
pub(crate) enum Event {
    Host(Request),
    Frame(Port, Frame),
    StartInputs,
    /// Reply when nothing is left to do.
    AwaitQuiescence(Sender<Result<(), Error>>),
    Stop,
}

/// Where a port's frames go.
pub(crate) enum Out {
    Nowhere,
    Line(Sender<Frame>),
    /// The TAPs' carrier, and the frames that it does not yet have.
    Tap(tap::Sender, Vec<Vec<u8>>),
    /// The participant of the calendar at this port.
    Participant,
}

/// Where time comes from.
pub(crate) enum Clock {
    Wall(Wall),
    Virtual(Virtual),
}

pub(crate) struct Wall {
    since: Instant,
    now: Picoseconds,
    /// Frames from the TAPs that wait for the core.
    pub waiting: [Arc<AtomicUsize>; 2],
}

pub(crate) struct Virtual {
    calendar: Calendar,
    skip_idle: bool,
    start_on_capture: bool,
    /// Clocks that an access waits for a busy core.
    access_patience: u32,
    /// The last clock cycle of the calendar.
    cycle: u64,
    hold: Option<Hold>,
    /// Blocks of the ring, and those that the host has taken of this capture.
    ring_blocks: u32,
    consumed: u32,
    /// No block holds the calendar since the host let one time out; until it takes one again.
    host_absent: bool,
    failed: Option<String>,
}

/// Blocks that the host has to take before time goes on.
struct Hold {
    consumed: u32,
    until: Instant,
}

/// How long blocks may hold the calendar.
const HOST_TIMEOUT: Duration = Duration::from_secs(5);
/// Clocks that an access waits for a busy core unless told otherwise. Clearing the tables takes
/// fewer.
const ACCESS_PATIENCE: u32 = 1 << 17;
/// Clocks after which an access that the core does not answer is given up.
const ACCESS_TIMEOUT: u32 = 1 << 12;
/// Clocks in wall time between two looks at what came from outside, and at the host's clock.
const CLOCKS_PER_LOOK: u64 = 16;
const CLOCKS_PER_TIME: u64 = 4;
/// Clocks in wall time after which frames are handed to the TAPs' carrier while the core is
/// busy: waking it for each would cost as much as the frame.
const CLOCKS_PER_HANDOVER: u64 = 64;

// Registers of midwire.rdl whose meaning the simulation has to know.
const CONTROL: u16 = 0x80;
const CONTROL_CAPTURE: u32 = 1;
const RING_BLOCKS_LOG2: u16 = 0xa8;
const RING_CONSUMED: u16 = 0xb0;

impl Wall {
    pub fn new(since: Instant) -> Self {
        Self {
            since,
            now: 0,
            waiting: Default::default(),
        }
    }

    fn sample(&mut self) {
        self.now = self.now.max(self.since.elapsed().as_nanos() as u64 * 1000);
    }
}

impl Virtual {
    pub fn new(calendar: Calendar, config: &Config) -> Self {
        Self {
            calendar,
            skip_idle: config.skip_idle,
            start_on_capture: config.start_on_capture,
            access_patience: if config.prompt_access {
                0
            } else {
                ACCESS_PATIENCE
            },
            cycle: 0,
            hold: None,
            ring_blocks: 1,
            consumed: 0,
            host_absent: false,
            failed: None,
        }
    }

    /// The host has written how many blocks it has taken.
    fn host_consumed(&mut self, consumed: u32) {
        self.host_absent = false;
        self.consumed = consumed;
        self.hold
            .take_if(|hold| consumed.wrapping_sub(hold.consumed).cast_signed() >= 0);
    }

    /// A block was written to the ring.
    fn block_written(&mut self, header: &BlockHeader) {
        if self.host_absent {
            return;
        }
        if header.number == 0 {
            self.consumed = 0;
        }
        let written = (header.number as u32).wrapping_add(1);
        let most = (self.ring_blocks / 2).max(1);
        if written.wrapping_sub(self.consumed) >= most {
            self.hold = Some(Hold {
                consumed: written.wrapping_sub(most - 1),
                until: Instant::now() + HOST_TIMEOUT,
            });
        }
    }
}

/// An AXI4-Lite access at work.
struct Access {
    write: Option<u32>,
    reply: Sender<u32>,
    address_done: bool,
    data_done: bool,
    clocks: u32,
    /// It began while nothing else moved: time stands still for it.
    still: bool,
}

// AXI4, A3.4.1 and A3.4.4
const SIZE_32_BYTES: u8 = 5;
const BURST_INCR: u8 = 1;
const OKAY: u8 = 0;
const SLVERR: u8 = 2;
const DECERR: u8 = 3;

/// A burst whose address was taken.
struct Burst {
    address: u64,
    beats: usize,
    sound: bool,
}

/// Bursts whose addresses are taken before the data of the first has come, so that data can
/// come in every clock.
const DMA_BURSTS: usize = 4;

/// What a PCIe Gen3 link of 16 lanes carries towards the host, for virtual time: 8 GT/s a lane
/// with 128b/130b coding (PCI Express 3.0, 4.2.2), in writes of up to 256 bytes, each with its
/// framing token, a header with a 64-bit address, and the link's CRC (2.2.1, 4.2.2.3).
#[derive(Default)]
struct Link {
    /// When it has carried all that it took.
    free: Picoseconds,
}

impl Link {
    const BYTE_FS: u64 = 63_477;
    const PAYLOAD: u64 = 256;
    const OVERHEAD: u64 = 4 + 16 + 4;
    /// What waits in the bridge for the link at the most.
    const BACKLOG: Picoseconds = 8192 * Self::BYTE_FS / 1000;

    fn has_room(&self, now: Picoseconds) -> bool {
        self.free <= now + Self::BACKLOG
    }

    fn carry(&mut self, address: u64, bytes: u64, now: Picoseconds) {
        let end = address.saturating_add(bytes.max(1));
        let writes = (end - 1) / Self::PAYLOAD - address / Self::PAYLOAD + 1;
        let time = (bytes + writes * Self::OVERHEAD) * Self::BYTE_FS / 1000;
        self.free = self.free.max(now) + time;
    }
}

/// The host's end of the DMA master.
struct DmaSlave {
    /// In virtual time: the bus behind it. In wall time the host's memory is as fast as it is.
    link: Option<Link>,
    bursts: VecDeque<Burst>,
    /// Of the first burst, or of the one before it when that has ended.
    data: Vec<u8>,
    strobes: Vec<u32>,
    ended: bool,
    responses: VecDeque<u8>,
}

impl DmaSlave {
    fn new(link: Option<Link>) -> Self {
        Self {
            link,
            bursts: VecDeque::new(),
            data: Vec::new(),
            strobes: Vec::new(),
            ended: false,
            responses: VecDeque::new(),
        }
    }

    fn takes_address(&self, now: Picoseconds) -> bool {
        self.bursts.len() < DMA_BURSTS && self.link.as_ref().is_none_or(|link| link.has_room(now))
    }

    #[inline]
    fn drive(&self, core: &mut Core, now: Picoseconds) {
        core.set_m_axi_awready(self.takes_address(now).into());
        core.set_m_axi_wready((!self.bursts.is_empty()).into());
        core.set_m_axi_bvalid((!self.responses.is_empty()).into());
        core.set_m_axi_bresp(self.responses.front().copied().unwrap_or(OKAY));
    }

    /// The handshakes before the edge; true when a burst was written to the host's memory,
    /// which `data` then still holds.
    #[inline]
    fn step(&mut self, core: &Core, function: &Function, now: Picoseconds) -> bool {
        let takes_address = self.takes_address(now);
        if core.m_axi_bready() != 0 {
            self.responses.pop_front();
        }
        let written = core.m_axi_wvalid() != 0 && self.take_beat(core, function);
        if takes_address && core.m_axi_awvalid() != 0 {
            let address = core.m_axi_awaddr();
            let sound = core.m_axi_awsize() == SIZE_32_BYTES
                && core.m_axi_awburst() == BURST_INCR
                && address.is_multiple_of(DMA_BYTES as u64);
            let beats = usize::from(core.m_axi_awlen()) + 1;
            if let Some(link) = &mut self.link {
                link.carry(address, (beats * DMA_BYTES) as u64, now);
            }
            self.bursts.push_back(Burst {
                address,
                beats,
                sound,
            });
        }
        written
    }

    /// A beat of the first burst; true when it was the last one and the burst was written.
    fn take_beat(&mut self, core: &Core, function: &Function) -> bool {
        let Some(&Burst {
            address,
            beats,
            sound,
        }) = self.bursts.front()
        else {
            return false;
        };
        if std::mem::take(&mut self.ended) {
            self.data.clear();
            self.strobes.clear();
        }
        self.data.extend_from_slice(core.m_axi_wdata());
        self.strobes.push(core.m_axi_wstrb());
        let last = self.strobes.len() == beats;
        if !last && core.m_axi_wlast() == 0 {
            return false;
        }
        let response = match sound && last && core.m_axi_wlast() != 0 {
            false => SLVERR,
            true if self.write(address, function) => OKAY,
            true => DECERR,
        };
        self.ended = true;
        self.bursts.pop_front();
        self.responses.push_back(response);
        response == OKAY
    }

    fn write(&self, address: u64, function: &Function) -> bool {
        if self.strobes.iter().all(|strobe| *strobe == u32::MAX) {
            return function.dma_write(address, &self.data);
        }
        let enabled = |at: usize| self.strobes[at / DMA_BYTES] >> (at % DMA_BYTES) & 1 != 0;
        (0..self.data.len())
            .filter(|at| enabled(*at))
            .all(|at| function.dma_write(address.wrapping_add(at as u64), &self.data[at..=at]))
    }
}

pub(crate) struct Simulation {
    core: Core,
    clock: Clock,
    function: Arc<Function>,
    counters: Arc<Counters>,
    events: Receiver<Event>,
    rx: [Receive; 2],
    tx: [Transmit; 2],
    out: [Out; 2],
    requests: VecDeque<Request>,
    access: Option<Access>,
    /// Clocks that the first request has waited for.
    waited: u32,
    dma: DmaSlave,
    waiters: Vec<Sender<Result<(), Error>>>,
    /// A clock may change something even without input.
    busy: bool,
    cycles: u64,
    stop: bool,
}

impl Simulation {
    pub fn new(
        core: Core,
        clock: Clock,
        function: Arc<Function>,
        counters: Arc<Counters>,
        events: Receiver<Event>,
        out: [Out; 2],
    ) -> Self {
        let width = core.width();
        let (cadence, link) = match clock {
            Clock::Wall(_) => (crate::mac::Cadence::Dense, None),
            Clock::Virtual(_) => (crate::mac::Cadence::Line, Some(Link::default())),
        };
        Self {
            core,
            clock,
            function,
            counters,
            events,
            rx: Port::ALL.map(|port| Receive::new(port, width, cadence)),
            tx: Port::ALL.map(|port| Transmit::new(port, width)),
            out,
            requests: VecDeque::new(),
            access: None,
            waited: 0,
            dma: DmaSlave::new(link),
            waiters: Vec::new(),
            busy: true,
            cycles: 0,
            stop: false,
        }
    }

    /// Runs until it is told to stop, or nobody is left who could.
    pub fn run(mut self) {
        while !self.stop {
            match self.clock {
                Clock::Wall(_) => self.run_wall(),
                Clock::Virtual(_) => self.run_virtual(),
            }
        }
        self.publish();
        if let Clock::Virtual(time) = &mut self.clock {
            let finished = time.calendar.finish();
            self.fail(finished);
        }
        for waiter in self.waiters.drain(..) {
            // Who does not wait any more does not want to know.
            let _ = waiter.send(Err(Error::Stopped));
        }
    }

    /// Keeps the first failure of a participant for who waits for the end.
    fn fail(&mut self, result: crate::error::Result<()>) {
        if let (Err(e), Clock::Virtual(time)) = (result, &mut self.clock) {
            time.failed.get_or_insert_with(|| e.to_string());
        }
    }

    fn publish(&self) {
        self.counters.cycles.store(self.cycles, Ordering::Relaxed);
        for (tx, counters) in self.tx.iter().zip(&self.counters.ports) {
            counters.underruns.store(tx.underruns, Ordering::Relaxed);
        }
    }

    // ---- what comes from outside ----

    fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
    }

    /// Waits for an event, but not behind the one that says to stop, which is the last; false when
    /// there was none in time.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.publish();
        if self.stop {
            return true;
        }
        let event = match timeout {
            Some(timeout) => self.events.recv_timeout(timeout),
            None => self
                .events
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        if let Clock::Wall(time) = &mut self.clock {
            time.sample();
        }
        match event {
            Ok(event) => {
                self.take(event);
                self.take_events();
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                self.stop = true;
                true
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Host(request) => self.requests.push_back(request),
            Event::Frame(port, mut frame) => {
                if let Clock::Virtual(time) = &self.clock {
                    let now = time.cycle * self.core.width().clock_ps();
                    frame.at = frame.at.max(now).max(INPUT_START);
                }
                self.rx[port.index()].push(frame);
            }
            Event::StartInputs => {
                if let Clock::Virtual(time) = &mut self.clock {
                    time.calendar.start();
                }
            }
            Event::AwaitQuiescence(waiter) => self.waiters.push(waiter),
            Event::Stop => self.stop = true,
        }
    }

    fn quiescent(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        self.publish();
        if let Clock::Virtual(time) = &mut self.clock {
            let finished = time.calendar.finish();
            self.fail(finished);
        }
        let failed = match &self.clock {
            Clock::Virtual(time) => time.failed.clone(),
            Clock::Wall(_) => None,
        };
        for waiter in self.waiters.drain(..) {
            let answer = failed
                .clone()
                .map_or(Ok(()), |e| Err(Error::Participant(e)));
            // Who does not wait any more does not want to know.
            let _ = waiter.send(answer);
        }
    }

    // ---- wall time ----

    fn run_wall(&mut self) {
        let period = self.core.width().clock_ps();
        while !self.stop {
            if self.cycles.is_multiple_of(CLOCKS_PER_LOOK) {
                self.take_events();
                self.publish();
            }
            if self.cycles.is_multiple_of(CLOCKS_PER_HANDOVER) {
                self.hand_over();
            }
            if self.access.is_none() {
                self.begin_access(false);
            }
            let Clock::Wall(time) = &mut self.clock else {
                return;
            };
            let idle =
                !self.busy && self.access.is_none() && self.rx.iter().all(|rx| rx.due == NEVER);
            if idle || self.cycles.is_multiple_of(CLOCKS_PER_TIME) {
                time.sample();
            }
            let now_ns = time.now / 1000;
            time.now += if idle { 0 } else { period };
            if idle {
                let timer = self.core.timer_valid() != 0;
                let left = self.core.timer_ns().saturating_sub(now_ns);
                if !timer {
                    self.quiescent();
                }
                if !timer || left > 0 {
                    self.hand_over();
                    self.wait(timer.then(|| Duration::from_nanos(left)));
                    continue;
                }
            }
            self.cycle(now_ns, self.cycles * period);
        }
    }

    fn hand_over(&mut self) {
        for (port, out) in self.out.iter_mut().enumerate() {
            if let Out::Tap(carrier, frames) = out
                && !frames.is_empty()
            {
                let lost = carrier.send(port, frames) as u64;
                let counters = &self.counters.ports[port];
                counters.lost_out.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    // ---- virtual time ----

    fn run_virtual(&mut self) {
        while !self.stop {
            self.take_events();
            let next = self.next_cycle();
            let Clock::Virtual(time) = &mut self.clock else {
                return;
            };
            let held = time.hold.is_some();
            let soon = next == Some(time.cycle + 1);
            if self.access.is_none() && (!soon || held || self.waited >= time.access_patience) {
                self.begin_access(!soon);
                self.waited = 0;
            }
            self.waited += u32::from(!self.requests.is_empty());
            match (&self.access, next) {
                (Some(access), Some(next)) if soon && !access.still => self.advance(next),
                (Some(_), _) => self.still_cycle(),
                (None, _) if held => self.await_host(),
                (None, Some(next)) => self.advance(next),
                (None, None) => {
                    self.quiescent();
                    self.wait(None);
                }
            }
        }
    }

    /// The next cycle of the calendar in which something happens.
    fn next_cycle(&self) -> Option<u64> {
        let Clock::Virtual(time) = &self.clock else {
            return None;
        };
        let after = time.cycle + 1;
        if self.busy {
            return Some(after);
        }
        if !time.calendar.is_started() {
            return None;
        }
        let period = self.core.width().clock_ps();
        let timer = match self.core.timer_valid() {
            0 => None,
            _ => Some(self.core.timer_ns().saturating_mul(1000)),
        };
        let due = self.rx.iter().map(|rx| rx.due).filter(|due| *due != NEVER);
        let next = due.chain(timer).chain(time.calendar.next()).min()?;
        let next = next.div_ceil(period).max(after);
        match time.skip_idle || time.cycle * period < INPUT_START {
            true => Some(next),
            false => Some(after),
        }
    }

    /// A cycle in which only an access moves, not time.
    fn still_cycle(&mut self) {
        let Clock::Virtual(time) = &self.clock else {
            return;
        };
        let now = time.cycle * self.core.width().clock_ps();
        self.cycle(now / 1000, now);
    }

    /// Goes on to cycle `next`, or to where participants have to act before.
    fn advance(&mut self, next: u64) {
        let Clock::Virtual(time) = &mut self.clock else {
            return;
        };
        let period = self.core.width().clock_ps();
        if !time.calendar.is_started() {
            return self.still_cycle();
        }
        let now = next * period;
        if now >= time.calendar.end() {
            let rx = &mut self.rx;
            let advanced = time
                .calendar
                .advance(now, |port, frame| rx[port].push(frame));
            self.fail(advanced);
            // What came in may be due before.
            return;
        }
        self.counters
            .cycles_skipped
            .fetch_add(next - time.cycle - 1, Ordering::Relaxed);
        time.cycle = next;
        self.cycle(now / 1000, now);
    }

    /// Waits for the host to take a block.
    fn await_host(&mut self) {
        let Clock::Virtual(time) = &mut self.clock else {
            return;
        };
        let Some(hold) = &time.hold else { return };
        let left = hold.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            time.hold = None;
            time.host_absent = true;
            self.counters.host_timeouts.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.wait(Some(left));
    }

    // ---- the host's accesses ----

    fn begin_access(&mut self, still: bool) {
        let (address, write, reply) = match self.requests.pop_front() {
            None => return,
            Some(Request::Read { address, reply }) => (address, None, reply),
            Some(Request::Write {
                address,
                value,
                reply,
            }) => (address, Some(value), reply),
            Some(Request::Reset { reply }) => return self.reset(&reply),
        };
        if let (Clock::Virtual(time), Some(value)) = (&mut self.clock, write) {
            match address {
                RING_CONSUMED => time.host_consumed(value),
                RING_BLOCKS_LOG2 => time.ring_blocks = 1 << value.min(16),
                CONTROL if value & CONTROL_CAPTURE != 0 && time.start_on_capture => {
                    time.calendar.start();
                }
                _ => {}
            }
        }
        self.core.set_s_axil_awaddr(address);
        self.core.set_s_axil_araddr(address);
        self.core.set_s_axil_wstrb(0xf);
        self.core.set_s_axil_wdata(write.unwrap_or(0));
        self.core.set_s_axil_awvalid(write.is_some().into());
        self.core.set_s_axil_wvalid(write.is_some().into());
        self.core.set_s_axil_arvalid(write.is_none().into());
        self.core.set_s_axil_bready(1);
        self.core.set_s_axil_rready(1);
        let (address_done, data_done) = (false, write.is_none());
        self.access = Some(Access {
            write,
            reply,
            address_done,
            data_done,
            clocks: 0,
            still,
        });
    }

    fn reset(&mut self, reply: &Sender<u32>) {
        self.core.reset();
        for (port, rx) in self.rx.iter_mut().enumerate() {
            if let (true, Clock::Wall(time), Out::Tap(..)) =
                (rx.abort(), &self.clock, &self.out[port])
            {
                time.waiting[port].fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.tx.iter_mut().for_each(Transmit::abort);
        self.dma = DmaSlave::new(self.dma.link.take());
        self.busy = true;
        if let Clock::Virtual(time) = &mut self.clock {
            time.hold = None;
        }
        // The host may be gone.
        let _ = reply.send(0);
    }

    /// The handshakes of an access before the edge; afterwards, with true, it is over.
    fn step_access(core: &mut Core, access: &mut Access) -> bool {
        access.clocks += 1;
        let answer = match access.write {
            Some(_) => {
                access.address_done |= core.s_axil_awready() != 0;
                access.data_done |= core.s_axil_wready() != 0;
                (core.s_axil_bvalid() != 0).then_some(0)
            }
            None => {
                access.address_done |= core.s_axil_arready() != 0;
                let value = || match core.s_axil_rresp() {
                    OKAY => core.s_axil_rdata(),
                    _ => u32::MAX,
                };
                (core.s_axil_rvalid() != 0).then(value)
            }
        };
        let over = answer.is_some() || access.clocks >= ACCESS_TIMEOUT;
        if over {
            // The host may be gone.
            let _ = access.reply.send(answer.unwrap_or(u32::MAX));
        }
        over
    }

    fn drive_access(&mut self, over: bool) {
        let Some(access) = &self.access else { return };
        if over || access.address_done {
            self.core.set_s_axil_awvalid(0);
            self.core.set_s_axil_arvalid(0);
        }
        if over || access.data_done {
            self.core.set_s_axil_wvalid(0);
        }
        if over {
            self.access = None;
        }
    }

    // ---- a clock ----

    /// One clock cycle at card time `now_ns`, which is `now` for the MACs.
    fn cycle(&mut self, now_ns: u64, now: Picoseconds) {
        let core = &mut self.core;
        core.set_time_ns(now_ns);
        let (mut valid, mut last, mut bad) = (0, 0, 0);
        for (port, rx) in self.rx.iter_mut().enumerate() {
            let Some(beat) = rx.drive(core, now) else {
                continue;
            };
            valid |= 1 << port;
            last |= u8::from(beat.last) << port;
            bad |= u8::from(beat.bad) << port;
            if beat.last {
                let counters = &self.counters.ports[port];
                PortCounters::add(&counters.frames_in, 1);
                PortCounters::add(&counters.bytes_in, beat.frame_bytes as u64);
                if let (Clock::Wall(time), Out::Tap(..)) = (&self.clock, &self.out[port]) {
                    time.waiting[port].fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        core.set_s_axis_tvalid(valid);
        core.set_s_axis_tlast(last);
        core.set_s_axis_tuser(bad);
        let ready = match self.clock {
            Clock::Wall(_) => 0b11,
            Clock::Virtual(_) => {
                u8::from(self.tx[0].ready(now)) | u8::from(self.tx[1].ready(now)) << 1
            }
        };
        core.set_m_axis_tready(ready);
        self.dma.drive(core, now);
        core.set_irq_ready(1);

        let sent = core.m_axis_tvalid() & ready;
        let mut whole = [None, None];
        if sent != 0 {
            let (last, bad) = (core.m_axis_tlast(), core.m_axis_tuser());
            for (port, tx) in self.tx.iter_mut().enumerate() {
                if sent >> port & 1 != 0 {
                    let bit = |bits: u8| bits >> port & 1 != 0;
                    whole[port] = tx.take(core, now, bit(last), bit(last & bad));
                }
            }
        }
        if self.dma.step(core, &self.function, now)
            && let Clock::Virtual(time) = &mut self.clock
            && let Some(header) = self.dma.data.get(..HEADER_BYTES)
            && let Ok(header) = BlockHeader::peek(header)
        {
            time.block_written(&header);
        }
        if core.irq_valid() != 0 {
            self.function.interrupt();
        }
        let over = match &mut self.access {
            Some(access) => Self::step_access(core, access),
            None => false,
        };
        core.edge();
        self.cycles += 1;
        self.busy = core.busy() != 0 || valid != 0;
        self.drive_access(over);
        for (port, frame) in whole.into_iter().enumerate() {
            if let Some((frame, end)) = frame {
                self.deliver(port, frame, end, now_ns);
            }
        }
    }

    fn deliver(&mut self, port: usize, mut frame: Frame, end: Picoseconds, now_ns: u64) {
        let counters = &self.counters.ports[port];
        PortCounters::add(&counters.frames_out, 1);
        PortCounters::add(&counters.bytes_out, frame.data.len() as u64);
        if frame.bad {
            PortCounters::add(&counters.bad_out, 1);
        }
        if let Clock::Wall(_) = self.clock {
            frame.at = now_ns * 1000;
        }
        match &mut self.out[port] {
            Out::Nowhere => {}
            Out::Line(line) => {
                // The other end may not care.
                let _ = line.send(frame);
            }
            // A frame with a wrong FCS is taken by nobody.
            Out::Tap(..) if frame.bad => {}
            Out::Tap(_, frames) => frames.push(frame.data),
            Out::Participant => {
                if let Clock::Virtual(time) = &mut self.clock {
                    let delivered = time.calendar.deliver(port, frame, end);
                    self.fail(delivered);
                }
            }
        }
    }
}
