// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Linux host in virtual time as a participant of the virtual card's calendar.

use midwire_endpoints::linux::Plug;
use midwire_endpoints::rnic;
use midwire_virtual_card::{Error, Frame, INPUT_START, Participant, Picoseconds, Result};

/// A Linux host at the end of its cable.
pub struct LinuxHost {
    plug: Plug,
    delay: Picoseconds,
    sent: Vec<rnic::Frame>,
}

impl LinuxHost {
    /// Its clock begins with the inputs.
    pub fn new(plug: Plug) -> Self {
        plug.pair().begin(INPUT_START);
        let delay = plug.pair().link(plug.port()).delay;
        Self {
            plug,
            delay,
            sent: Vec::new(),
        }
    }
}

impl Participant for LinuxHost {
    fn next(&self) -> Option<Picoseconds> {
        self.plug.pair().next(self.plug.port())
    }

    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()> {
        let port = self.plug.port();
        let advanced = self.plug.pair().advance(port, to, &mut self.sent);
        sent.extend(self.sent.drain(..).map(|frame| Frame {
            at: frame.at + self.delay,
            data: frame.data,
            bad: frame.bad,
        }));
        advanced.map_err(|e| Error::Participant(e.to_string()))
    }

    fn receive(&mut self, frame: Frame, end: Picoseconds) -> Result<()> {
        let Frame { at, data, bad } = frame;
        let frame = rnic::Frame { at, data, bad };
        let port = self.plug.port();
        self.plug.pair().receive(port, end + self.delay, frame);
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
    use midwire_endpoints::linux::{Config, Image, Kind, Limits, Link, Network, Pair, Task};
    use midwire_virtual_card::{Config as CardConfig, PortConfig, Time, VirtualCard};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A host that claims a shorter cable, and what it has sent.
    struct Claims {
        host: LinuxHost,
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
                host: LinuxHost::new(plug),
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
