// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where cards come from: a virtual one that is started for the run, one that is served on a
//! vfio-user socket, or a board.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use midwire_control::bench::{CardProvider, CardRequest, Feed, PortFeed, Provided};
use midwire_control::plan::CardTime;
use midwire_driver::{Backend, Card, KernelVfio, VfioUser};
use midwire_virtual_card::{Config, Pace, PortConfig, Time, VirtualCard, Width};

use crate::participant::Cabled;
use crate::{Failure, print_json};

/// Which card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One that is made for the run.
    Virtual,
    /// One that is served on a vfio-user socket; its ports are its own.
    Socket(PathBuf),
    /// A board; endpoints are plugged into it.
    Pci(String),
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == "virtual" => Ok(Self::Virtual),
            Some(("socket", path)) if !path.is_empty() => Ok(Self::Socket(path.into())),
            Some(("pci", address)) if !address.is_empty() => Ok(Self::Pci(address.to_owned())),
            _ => Err(
                "expected virtual, socket:PATH or pci:ADDRESS such as pci:0000:01:00.0".to_owned(),
            ),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Virtual => f.write_str("virtual"),
            Self::Socket(path) => write!(f, "socket:{}", path.display()),
            Self::Pci(address) => write!(f, "pci:{address}"),
        }
    }
}

impl Place {
    fn open(&self) -> Result<Card, String> {
        let backend: Box<dyn Backend> = match self {
            Self::Virtual => {
                return Err("a virtual card exists only while it runs: name a socket".to_owned());
            }
            Self::Socket(path) => Box::new(VfioUser::connect(path).map_err(|e| e.to_string())?),
            Self::Pci(address) => Box::new(KernelVfio::open(address).map_err(|e| e.to_string())?),
        };
        Card::open(backend).map_err(|e| e.to_string())
    }

    /// Prints what the card is and what it has counted.
    pub fn info(&self) -> Result<u8, Failure> {
        let card = self.open().map_err(Failure::environment)?;
        let counters = card.counters().map_err(Failure::environment)?;
        print_json(&serde_json::json!({ "card": card.info(), "counters": counters }))?;
        Ok(0)
    }
}

/// Longest time that the last frames may take to come out, in wall time.
const PLAY: Duration = Duration::from_secs(3600);

/// Brings up cards at a place.
pub struct Provider {
    place: Place,
}

impl Provider {
    /// For cards at `place`.
    pub fn new(place: Place) -> Self {
        Self { place }
    }
}

impl CardProvider for Provider {
    fn provide(&mut self, request: CardRequest) -> Result<Provided, String> {
        let external = |port: &PortFeed| matches!(port, PortFeed::External);
        match (&self.place, request.ports.iter().all(external)) {
            (Place::Virtual, false) => start(request),
            (Place::Virtual, true) => Err(
                "the endpoints of this plan are plugged into a card that is there already: say which, --card socket:PATH or --card pci:ADDRESS"
                    .to_owned(),
            ),
            (there, true) => Ok(Provided {
                device: Box::new(there.open()?),
                feed: Box::new(Theirs),
            }),
            (there, false) => {
                let own = match request.ports {
                    [PortFeed::Tap(_), _] => "makes its own hosts, whose TAPs",
                    [PortFeed::Rnic(_), _] => "makes its own NICs, which",
                    [PortFeed::Linux(_), _] => "makes its own Linux hosts, which",
                    _ => "plays files, which",
                };
                Err(format!(
                    "this plan {own} can only be plugged into a virtual card that is started for the run: leave --card away, or give the plan endpoints `a: external` and `b: external` to use what is plugged into {there}"
                ))
            }
        }
    }
}

/// What others have plugged into a card.
struct Theirs;

impl Feed for Theirs {}

fn start(request: CardRequest) -> Result<Provided, String> {
    let width = match request.width {
        64 => Width::W64,
        _ => Width::W512,
    };
    let time = match request.time {
        CardTime::Wall => Time::Wall,
        CardTime::Virtual => Time::Virtual,
    };
    let socket = Socket::new()?;
    let config = Config {
        width,
        time,
        ports: request.ports.map(port),
        socket: Some(socket.path.clone()),
        ..Config::default()
    };
    let card = VirtualCard::spawn(config).map_err(|e| e.to_string())?;
    let device = Place::Socket(socket.path.clone()).open()?;
    Ok(Provided {
        device: Box::new(device),
        feed: Box::new(Running {
            card,
            plays: time == Time::Virtual,
            _socket: socket,
        }),
    })
}

fn port(feed: PortFeed) -> PortConfig {
    match feed {
        PortFeed::Tap(fd) => PortConfig::TapFd(fd),
        PortFeed::Rnic(plug) => PortConfig::Participant(Box::new(Cabled::new(plug))),
        PortFeed::Linux(plug) => PortConfig::Participant(Box::new(Cabled::new(plug))),
        PortFeed::External
        | PortFeed::Pcap {
            input: None,
            output: None,
            ..
        } => PortConfig::Unplugged,
        PortFeed::Pcap {
            input,
            line_rate,
            output,
        } => PortConfig::File {
            input,
            pace: if line_rate {
                Pace::LineRate
            } else {
                Pace::Recorded
            },
            output,
        },
    }
}

/// A socket in a directory that only this user can enter, removed with it.
struct Socket {
    directory: PathBuf,
    path: PathBuf,
}

/// Removes what runs that were killed have left: directories named after a process that is gone.
fn sweep(temporary: &Path) {
    let Ok(entries) = std::fs::read_dir(temporary) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = |n: &str| Some(n.strip_prefix("midwire-")?.split('-').next()?.to_owned());
        let process = name.to_str().and_then(number);
        if let Some(Ok(process)) = process.map(|process| process.parse::<u32>())
            && !Path::new("/proc").join(process.to_string()).exists()
        {
            // Another user's stays; it is theirs to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Socket {
    fn new() -> Result<Self, String> {
        use std::os::unix::fs::DirBuilderExt as _;
        let temporary = std::env::temp_dir();
        sweep(&temporary);
        // A process can have several cards at a time.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("midwire-{}-{number}", std::process::id());
        let directory = temporary.join(name);
        let made = |d: &Path| std::fs::DirBuilder::new().mode(0o700).create(d);
        // A process of this number that was killed may have left one.
        let result = match made(&directory) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&directory).and_then(|()| made(&directory))
            }
            other => other,
        };
        result.map_err(|e| {
            format!(
                "can't make a directory for the card's socket, {}: {e}",
                directory.display()
            )
        })?;
        let path = directory.join("card.sock");
        Ok(Self { directory, path })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // At worst an empty directory stays in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A card that was started for a run.
struct Running {
    card: VirtualCard,
    /// Frames come in from when it is told to play, until there are no more.
    plays: bool,
    _socket: Socket,
}

impl Feed for Running {
    fn play(&mut self) -> Result<(), String> {
        if self.plays {
            self.card.start_inputs().map_err(|e| e.to_string())
        } else {
            Ok(())
        }
    }

    fn played(&mut self) -> Result<bool, String> {
        if !self.plays {
            return if self.card.is_running() {
                Ok(true)
            } else {
                Err("the virtual card has stopped".to_owned())
            };
        }
        match self.card.wait_quiescent(Duration::from_millis(50)) {
            Ok(()) => Ok(true),
            Err(midwire_virtual_card::Error::Busy(_)) => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.plays {
            self.card.wait_quiescent(PLAY).map_err(|e| e.to_string())
        } else {
            Ok(())
        }
    }
}
