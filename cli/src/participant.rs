// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model NICs and Linux hosts as participants of the virtual card's calendar.

use midwire_endpoints::rnic::Frame as Sent;
use midwire_endpoints::{linux, rnic};
use midwire_virtual_card::{Error, Frame, INPUT_START, Participant, Picoseconds, Result};

/// What can be at the end of a cable in virtual time. Its traffic or its clock begins with the
/// inputs of the card.
pub trait Station: Send {
    /// Begins at this time.
    fn begin(&self, at: Picoseconds);
    /// What the cable takes, one way.
    fn delay(&self) -> Picoseconds;
    /// When it acts next if nothing comes in.
    fn next(&self) -> Option<Picoseconds>;
    /// Runs to just before `to`; adds what it sends, by the time that its first bit leaves.
    fn advance(&self, to: Picoseconds, sent: &mut Vec<Sent>) -> Result<()>;
    /// Takes a frame, the last bit of which arrives at this time.
    fn receive(&self, at: Picoseconds, frame: Sent);
}

impl Station for rnic::Plug {
    fn begin(&self, at: Picoseconds) {
        self.bed().start(at);
    }

    fn delay(&self) -> Picoseconds {
        self.bed().nic(self.port()).config().link_delay
    }

    fn next(&self) -> Option<Picoseconds> {
        self.bed().nic(self.port()).next()
    }

    fn advance(&self, to: Picoseconds, sent: &mut Vec<Sent>) -> Result<()> {
        self.bed().advance(self.port(), to, sent);
        Ok(())
    }

    fn receive(&self, at: Picoseconds, frame: Sent) {
        self.bed().receive(self.port(), at, frame);
    }
}

impl Station for linux::Plug {
    fn begin(&self, at: Picoseconds) {
        self.pair().begin(at);
    }

    fn delay(&self) -> Picoseconds {
        self.pair().link(self.port()).delay
    }

    fn next(&self) -> Option<Picoseconds> {
        self.pair().next(self.port())
    }

    fn advance(&self, to: Picoseconds, sent: &mut Vec<Sent>) -> Result<()> {
        let advanced = self.pair().advance(self.port(), to, sent);
        advanced.map_err(|e| Error::Participant(e.to_string()))
    }

    fn receive(&self, at: Picoseconds, frame: Sent) {
        self.pair().receive(self.port(), at, frame);
    }
}

/// A station and its cable.
pub struct Cabled<S> {
    station: S,
    delay: Picoseconds,
    sent: Vec<Sent>,
}

impl<S: Station> Cabled<S> {
    /// Begins with the inputs.
    pub fn new(station: S) -> Self {
        station.begin(INPUT_START);
        Self {
            delay: station.delay(),
            station,
            sent: Vec::new(),
        }
    }
}

impl<S: Station> Participant for Cabled<S> {
    fn next(&self) -> Option<Picoseconds> {
        self.station.next()
    }

    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()> {
        let advanced = self.station.advance(to, &mut self.sent);
        sent.extend(self.sent.drain(..).map(|frame| Frame {
            at: frame.at + self.delay,
            data: frame.data,
            bad: frame.bad,
        }));
        advanced
    }

    fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<()> {
        let Frame { at, data, bad } = frame;
        let frame = Sent { at, data, bad };
        self.station.receive(end + self.delay, frame);
        Ok(())
    }

    fn link_delay(&self) -> Picoseconds {
        self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midwire_endpoints::Port;
    use midwire_endpoints::linux::{Config, Image, Kind, Limits, Link, Network, Pair, Plug, Task};
    use midwire_virtual_card::{Config as CardConfig, PortConfig, Time, VirtualCard};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A host that claims a shorter cable, and what it has sent.
    struct Claims {
        host: Cabled<Plug>,
        delay: Picoseconds,
        sent: Arc<Mutex<Vec<Frame>>>,
    }

    impl Participant for Claims {
        fn next(&self) -> Option<Picoseconds> {
            self.host.next()
        }
        fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()> {
            let advanced = self.host.advance(to, sent);
            self.sent
                .lock()
                .expect("no panic")
                .extend(sent.iter().cloned());
            advanced
        }
        fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<()> {
            self.host.receive(frame, end)
        }
        fn link_delay(&self) -> Picoseconds {
            self.delay
        }
    }

    const DELAY: Picoseconds = 5_000_000;

    fn config(port: Port, own: &str) -> Config {
        Config {
            image: Image::find(None, None).expect("make hosts"),
            link: Link {
                mac: [2, 0, 0, 0, 0, if port == Port::A { 10 } else { 11 }],
                mtu: 1500,
                byte_time: 8_000,
                delay: DELAY,
                coalescing: 0,
            },
            network: Network {
                addresses: vec![own.parse().expect("an address")],
                neighbour: None,
                sysctls: Default::default(),
                congestion_control: None,
                rdma: false,
            },
            drift_ppb: 0,
            time_of_day: 0,
            clock_read_ns: 256,
            memory_mib: 128,
            seed: 1,
            files: Vec::new(),
            agent: None,
            patience: Duration::from_secs(30),
            shows_state: false,
            trace: Vec::new(),
        }
    }

    /// What two hosts send each other when the calendar goes in spans of this length.
    fn traffic(span: Picoseconds, directory: &Path) -> Vec<Vec<Frame>> {
        let task = |on, run: &str, kind| Task {
            on,
            run: run.to_owned(),
            kind,
        };
        let tasks = vec![
            task(Port::B, "iperf3 -s -1", Kind::Background),
            task(Port::A, "iperf3 -c $MIDWIRE_B -n 300K", Kind::Foreground),
        ];
        let limits = Limits {
            traffic: 60_000_000_000_000,
            quiet: 1_000_000_000,
            until: None,
        };
        let configs = [
            config(Port::A, "10.0.0.1/24"),
            config(Port::B, "10.0.0.2/24"),
        ];
        let pair = Pair::start(directory, configs, tasks, limits).expect("hosts");
        let sent = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
        let mut logs = sent.iter();
        let ports = Plug::both(pair).map(|plug| {
            let claims = Claims {
                host: Cabled::new(plug),
                delay: span,
                sent: logs.next().expect("two logs").clone(),
            };
            PortConfig::Participant(Box::new(claims))
        });
        let card = VirtualCard::spawn(CardConfig {
            time: Time::Virtual,
            ports,
            ..CardConfig::default()
        })
        .expect("a card");
        card.start_inputs().expect("started");
        card.wait_quiescent(Duration::from_secs(300)).expect("rest");
        let take =
            |log: &Arc<Mutex<Vec<Frame>>>| std::mem::take(&mut *log.lock().expect("no panic"));
        sent.iter().map(take).collect()
    }

    #[test]
    #[ignore = "needs make hosts"]
    fn the_span_of_the_calendar_has_no_say() {
        let at_once = tempfile::tempdir().expect("directory");
        let bit_by_bit = tempfile::tempdir().expect("directory");
        let long = traffic(DELAY, at_once.path());
        let short = traffic(DELAY / 7, bit_by_bit.path());
        assert!(long[0].len() > 100, "{} frames", long[0].len());
        assert!(long == short, "they differ");
    }
}
