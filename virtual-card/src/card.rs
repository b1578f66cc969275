// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual card as a whole: a simulation on a thread of its own, and the ways to it.

use crate::calendar::{Calendar, Frame, Participant, Picoseconds};
use crate::core::{Core, Width};
use crate::error::{Error, Result};
use crate::file::{FilePort, Pace};
use crate::function::{Function, HostBus};
use crate::server::Server;
use crate::sim::{Clock, Event, Out, Simulation, Virtual, Wall};
use crate::stats::{Counters, Stats};
use crate::tap::{self, Carrier, Tap};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use midwire_trace::Port;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Which time the card lives in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// That of the host: card time counts from the making of the card. For TAPs.
    #[default]
    Wall,
    /// That of a calendar: repeatable to the bit, however fast the machine is.
    Virtual,
}

/// What is plugged into a port.
#[derive(Default)]
pub enum PortConfig {
    /// Nothing: no frames come, and those that leave are lost.
    #[default]
    Unplugged,
    /// A TAP by name, which is made if it is not there. Wall time.
    Tap(String),
    /// A TAP that is open already, with IFF_TAP and IFF_NO_PI. Wall time.
    TapFd(OwnedFd),
    /// A pcap or pcapng file. Virtual time.
    File {
        /// Where frames come from; none come without it.
        input: Option<PathBuf>,
        /// When they come.
        pace: Pace,
        /// A pcapng file for the frames that leave the port.
        output: Option<PathBuf>,
    },
    /// A participant of the calendar. Virtual time.
    Participant(Box<dyn Participant>),
    /// This process, through [`VirtualCard::line`].
    Line,
}

/// How a card is made.
pub struct Config {
    /// Which core.
    pub width: Width,
    /// Which time.
    pub time: Time,
    /// What is plugged into port A and port B.
    pub ports: [PortConfig; 2],
    /// A UNIX socket to serve vfio-user on.
    pub socket: Option<PathBuf>,
    /// Virtual time: jump over clocks in which nothing can change. Results are the same
    /// without, only later.
    pub skip_idle: bool,
    /// Virtual time: inputs start when the host sets `control.capture`, without
    /// [`VirtualCard::start_inputs`].
    pub start_on_capture: bool,
    /// Virtual time: accesses of the host go on while packets pass, instead of between them. What
    /// happens then depends on the host's pace.
    pub prompt_access: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            width: Width::W512,
            time: Time::Wall,
            ports: Default::default(),
            socket: None,
            skip_idle: true,
            start_on_capture: false,
            prompt_access: false,
        }
    }
}

/// A running card. Dropping it stops it.
pub struct VirtualCard {
    bus: HostBus,
    counters: Arc<Counters>,
    events: Sender<Event>,
    lines: [Option<Receiver<Frame>>; 2],
    server: Option<Server>,
    simulation: Option<JoinHandle<()>>,
    carrier: Option<Carrier>,
}

impl VirtualCard {
    /// Makes a card and lets it run.
    pub fn spawn(mut config: Config) -> Result<Self> {
        let (events, inbox) = unbounded();
        let function = Function::new();
        let counters = Arc::new(Counters::new());
        let submit = events.clone();
        let bus = HostBus::new(function.clone(), move |request| {
            submit.send(Event::Host(request)).is_ok()
        });
        let mut lines = [None, None];
        let mut out = [Out::Nowhere, Out::Nowhere];
        let mut taps = [None, None];
        let mut files = [None, None];
        let mut participants: [Option<Box<dyn Participant>>; 2] = [None, None];
        let wall = Wall::new(counters.since);

        for ((port, plugged), letter) in Port::ALL
            .into_iter()
            .zip(std::mem::take(&mut config.ports))
            .zip(["A", "B"])
        {
            let index = port.index();
            let needs = |time: Time| match config.time == time {
                true => Ok(()),
                false => Err(Error::Config(format!(
                    "what is plugged into port {letter} does not live in {:?} time",
                    config.time
                ))),
            };
            match plugged {
                PortConfig::Unplugged => {}
                PortConfig::Line => {
                    let (to, from) = unbounded();
                    out[index] = Out::Line(to);
                    lines[index] = Some(from);
                }
                PortConfig::Tap(_) | PortConfig::TapFd(_) => {
                    needs(Time::Wall)?;
                    let fd = match plugged {
                        PortConfig::Tap(name) => tap::open(&name)?,
                        PortConfig::TapFd(fd) => fd,
                        _ => continue,
                    };
                    let events = events.clone();
                    let input = move |data| {
                        let (at, bad) = (0, false);
                        let frame = Frame { at, data, bad };
                        events.send(Event::Frame(port, frame)).is_ok()
                    };
                    taps[index] = Some(Tap {
                        device: fd.into(),
                        input: Box::new(input),
                        waiting: wall.waiting[index].clone(),
                        counters: counters.ports[index].clone(),
                    });
                }
                PortConfig::File {
                    input,
                    pace,
                    output,
                } => {
                    needs(Time::Virtual)?;
                    out[index] = Out::Participant;
                    files[index] = Some(FilePort::open(
                        input.as_deref(),
                        pace,
                        output.as_deref(),
                        config.width,
                    )?);
                }
                PortConfig::Participant(participant) => {
                    needs(Time::Virtual)?;
                    out[index] = Out::Participant;
                    participants[index] = Some(participant);
                }
            }
        }
        let carries = [taps[0].is_some(), taps[1].is_some()];
        let carrier = match carries {
            [false, false] => None,
            _ => Some(Carrier::start(taps)?),
        };
        for (out, carried) in out.iter_mut().zip(carries) {
            if let (true, Some(carrier)) = (carried, &carrier) {
                *out = Out::Tap(carrier.sender(), Vec::new());
            }
        }
        // Two files of one recording keep their distance in time.
        let origin = files.iter().flatten().filter_map(FilePort::first).min();
        for (participant, file) in participants.iter_mut().zip(files) {
            if let Some(mut file) = file {
                origin
                    .into_iter()
                    .for_each(|origin| file.set_origin(origin));
                *participant = Some(Box::new(file));
            }
        }
        let clock = match config.time {
            Time::Wall => Clock::Wall(wall),
            Time::Virtual => Clock::Virtual(Virtual::new(Calendar::new(participants), &config)),
        };
        let core = Core::new(config.width)?;
        let simulation = Simulation::new(core, clock, function, counters.clone(), inbox, out);
        let server = config
            .socket
            .map(|path| Server::start(path, bus.clone()))
            .transpose()?;
        let simulation = thread::Builder::new()
            .name("virtual card".into())
            .spawn(move || simulation.run())
            .map_err(Error::io("start the simulation"))?;
        let simulation = Some(simulation);
        Ok(Self {
            bus,
            counters,
            events,
            lines,
            server,
            simulation,
            carrier,
        })
    }

    /// The socket that vfio-user is served on.
    pub fn socket(&self) -> Option<&Path> {
        self.server.as_ref().map(Server::path)
    }

    /// The host's side of the card, within this process.
    pub fn host_bus(&self) -> HostBus {
        self.bus.clone()
    }

    /// The line at a port that was made as [`PortConfig::Line`].
    pub fn line(&self, port: Port) -> Option<Line> {
        let from_card = self.lines[port.index()].clone()?;
        Some(Line {
            port,
            events: self.events.clone(),
            from_card,
        })
    }

    /// Virtual time: configuration is done and inputs may start, at
    /// [`INPUT_START`](crate::INPUT_START).
    pub fn start_inputs(&self) -> Result<()> {
        self.events
            .send(Event::StartInputs)
            .map_err(|_| Error::Stopped)
    }

    /// Waits until all input has been played out and the core is idle with no timer armed, and
    /// output files are written.
    pub fn wait_quiescent(&self, timeout: Duration) -> Result<()> {
        let (reply, answer) = bounded(1);
        self.events
            .send(Event::AwaitQuiescence(reply))
            .map_err(|_| Error::Stopped)?;
        match answer.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(Error::Busy(timeout.as_secs_f64())),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopped),
        }
    }

    /// What the card did so far. Exact when it is quiescent.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// Whether the simulation still runs.
    pub fn is_running(&self) -> bool {
        self.simulation
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the card and says what it did.
    pub fn shutdown(mut self) -> Stats {
        self.stop();
        self.stats()
    }

    fn stop(&mut self) {
        // New clients must not wait for a simulation that has gone.
        self.server = None;
        // It may have ended on its own.
        let _ = self.events.send(Event::Stop);
        if let Some(simulation) = self.simulation.take() {
            // A panic has been printed; there is nothing to undo.
            let _ = simulation.join();
        }
        self.carrier = None;
    }
}

impl Drop for VirtualCard {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The far end of a port's line, held by this process.
pub struct Line {
    port: Port,
    events: Sender<Event>,
    from_card: Receiver<Frame>,
}

impl Line {
    /// Sends a frame as soon as the line is free; in virtual time not before inputs start.
    pub fn send(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.send_frame(Frame {
            at: 0,
            data: data.into(),
            bad: false,
        })
    }

    /// Sends a frame. `at` counts in virtual time alone; what is not sent before inputs start
    /// goes when it goes, and is not repeatable.
    pub fn send_frame(&self, frame: Frame) -> Result<()> {
        self.events
            .send(Event::Frame(self.port, frame))
            .map_err(|_| Error::Stopped)
    }

    /// The next frame from the card, if there is one by then.
    pub fn receive(&self, timeout: Duration) -> Option<Frame> {
        self.from_card.recv_timeout(timeout).ok()
    }

    /// The next frame from the card, if there is one now.
    pub fn try_receive(&self) -> Option<Frame> {
        self.from_card.try_recv().ok()
    }
}

/// Picoseconds of `ns` nanoseconds after inputs start.
pub fn after_start(ns: u64) -> Picoseconds {
    crate::calendar::INPUT_START.saturating_add(ns.saturating_mul(1000))
}
