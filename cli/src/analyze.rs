// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire analyze`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use midwire_analysis::roce::source::{self, Read};
use midwire_analysis::roce::{Limit, Scope, Settings, Timer};
use midwire_control::table;
use midwire_control::verdict::{BAD_PLAN, Outcome};
use midwire_trace::Capture;
use midwire_trace::block::MAGIC;

use crate::{Failure, print_json, say};

/// Options of `midwire analyze`.
#[derive(Args)]
pub struct Analyze {
    /// Directory of a run; or a file with RoCEv2: pcap, pcapng, or the capture of a run
    path: PathBuf,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Asked,
}

/// What the NICs were asked to do: what they did is held against it.
#[derive(Args)]
#[command(next_help_heading = "What the NICs were set to")]
struct Asked {
    /// Timeout of the queue pairs: 4.096 µs · 2^N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..32))]
    timeout: Option<u8>,
    /// Retries without progress that the queue pairs may take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..8))]
    retry_count: Option<u8>,
    /// Least time between congestion notifications, in µs
    #[arg(long, value_name = "MICROSECONDS")]
    cnp_interval: Option<u32>,
    /// What that time counts for: qp, ip or port
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    cnp_scope: Option<Scope>,
}

fn scope(text: &str) -> Result<Scope, String> {
    serde_json::from_value(text.into()).map_err(|_| "expected qp, ip or port".to_owned())
}

impl From<&Asked> for Settings {
    fn from(asked: &Asked) -> Self {
        Self {
            timer: Timer {
                timeout: asked.timeout,
                retry_count: asked.retry_count,
            },
            notification: Limit {
                notifies: None,
                notification_interval_ns: asked.cnp_interval.map(|us| u64::from(us) * 1_000),
                notification_scope: asked.cnp_scope,
            },
            ..Self::default()
        }
    }
}

impl Analyze {
    /// The exit code.
    pub fn carry_out(self) -> Result<u8, Failure> {
        if self.path.is_dir() {
            return self.run();
        }
        let settings = Settings::from(&self.settings);
        let read = if is_capture(&self.path)? {
            let capture = Capture::open(&self.path).map_err(Failure::environment)?;
            source::capture(&capture, settings)
        } else {
            source::packet_file(&self.path, settings).map_err(Failure::environment)?
        };
        if let Some(why) = nothing(&read) {
            let path = self.path.display();
            return Err(Failure {
                message: format!("{path} holds no RoCEv2: {why}"),
                code: BAD_PLAN,
            });
        }
        if self.json {
            print_json(&read)?;
        } else {
            say(read.text().trim_end())?;
        }
        Ok(match &read {
            Read { cut: Some(_), .. } => Outcome::CaptureIncomplete.exit_code(),
            read if read.analysis.findings.is_empty() => Outcome::Pass.exit_code(),
            _ => Outcome::ExpectationFailed.exit_code(),
        })
    }

    fn run(&self) -> Result<u8, Failure> {
        let run = midwire_control::analyze(&self.path)?;
        if self.json {
            print_json(&run)?;
        } else {
            say(table::text(&run, &self.path).trim_end())?;
        }
        Ok(run.verdict.exit_code)
    }
}

/// Whether a file is of the card's blocks.
fn is_capture(path: &Path) -> Result<bool, Failure> {
    let failure = |e| Failure::environment(format!("can't read {}: {e}", path.display()));
    let mut start = Vec::new();
    let file = File::open(path).map_err(failure)?;
    file.take(4).read_to_end(&mut start).map_err(failure)?;
    Ok(start == MAGIC.to_le_bytes())
}

/// Why there is nothing to be analysed.
fn nothing(read: &Read) -> Option<String> {
    let Read {
        packets,
        other_links,
        cut,
        analysis,
        ..
    } = read;
    let what = match (analysis.packets, *packets) {
        (0, 0) => "there is no packet".to_owned(),
        (0, _) if other_links == packets => {
            format!("none of {packets} packets is of an Ethernet link")
        }
        (0, _) => format!("none of {packets} packets goes to UDP port 4791 with whole headers"),
        _ => return None,
    };
    Some(match cut {
        Some(cut) => format!("{what} before the file ends: {cut}"),
        None => what,
    })
}
