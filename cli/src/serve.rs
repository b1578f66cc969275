// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire card serve`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::TypedValueParser as _;
use clap::{Args, ValueEnum};
use midwire_virtual_card::{Config, Pace, PortConfig, Time, Width, serve};

use crate::{Failure, say};

/// Options of `midwire card serve`.
#[derive(Args)]
pub struct Serve {
    /// UNIX socket to serve vfio-user on
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// What is plugged into port A: tap:NAME, pcap:FILE, pcap-line-rate:FILE or none
    #[arg(long, value_name = "WHAT", default_value = "none")]
    port_a: Plugged,
    /// What is plugged into port B
    #[arg(long, value_name = "WHAT", default_value = "none")]
    port_b: Plugged,
    /// Time of the card; in virtual time, files begin when a host starts a capture
    #[arg(long, value_enum, default_value = "wall")]
    time: CardTime,
    /// Bits of the core's data path: 512 (100GbE) or 64 (10GbE)
    #[arg(long, default_value_t = 512, value_parser = clap::builder::PossibleValuesParser::new(["512", "64"]).map(|s| if s == "64" { 64u32 } else { 512 }))]
    width: u32,
}

/// What is plugged into a port.
#[derive(Clone, Debug)]
enum Plugged {
    None,
    Tap(String),
    Pcap(PathBuf, Pace),
}

impl FromStr for Plugged {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == "none" => Ok(Self::None),
            Some(("tap", name)) if !name.is_empty() => Ok(Self::Tap(name.to_owned())),
            Some(("pcap", file)) if !file.is_empty() => Ok(Self::Pcap(file.into(), Pace::Recorded)),
            Some(("pcap-line-rate", file)) if !file.is_empty() => {
                Ok(Self::Pcap(file.into(), Pace::LineRate))
            }
            _ => Err("expected none, tap:NAME, pcap:FILE or pcap-line-rate:FILE".to_owned()),
        }
    }
}

impl Plugged {
    fn config(self) -> PortConfig {
        match self {
            Self::None => PortConfig::Unplugged,
            Self::Tap(name) => PortConfig::Tap(name),
            Self::Pcap(input, pace) => PortConfig::File {
                input: Some(input),
                pace,
                output: None,
            },
        }
    }
}

/// Which time the card lives in.
#[derive(Clone, Copy, ValueEnum)]
enum CardTime {
    /// That of this machine
    Wall,
    /// That of the files
    Virtual,
}

impl Serve {
    /// Serves until a signal.
    pub fn run(self) -> Result<u8, Failure> {
        let (time, start_on_capture) = match self.time {
            CardTime::Wall => (Time::Wall, false),
            CardTime::Virtual => (Time::Virtual, true),
        };
        let config = Config {
            width: if self.width == 64 {
                Width::W64
            } else {
                Width::W512
            },
            time,
            ports: [self.port_a.config(), self.port_b.config()],
            socket: Some(self.socket),
            start_on_capture,
            ..Config::default()
        };
        let stats = serve(config, |card| {
            let socket = card
                .socket()
                .map_or_else(String::new, |p| p.display().to_string());
            // Whoever started this in a pipe may have gone; the card serves all the same.
            let _ = say(&format!("serving on {socket}"));
        })
        .map_err(Failure::environment)?;
        for (name, port) in ["A", "B"].iter().zip(stats.ports) {
            say(&format!(
                "port {name}: {} frames in, {} out, {} lost at the TAP",
                port.frames_in, port.frames_out, port.lost_out
            ))?;
        }
        Ok(0)
    }
}
