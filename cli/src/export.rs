// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `midwire export`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use midwire_control::lumina;
use midwire_control::run_file::{RunFile, files};
use midwire_trace::inside::Senders;
use midwire_trace::{Capture, export};

use crate::{Failure, say};

/// Options of `midwire export`.
#[derive(Args)]
#[group(id = "format", required = true, multiple = true, args = ["pcapng", "csv", "parquet", "lumina"])]
pub struct Export {
    /// Directory of the run
    run: PathBuf,
    /// Write pcapng: an interface per port and tap, a comment on each packet that an event touched
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    /// Write CSV, a line a record, with what the kernel of its sender knew when that was traced
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the same as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Write what Lumina's analyzers read: `lumina-analyzer -f DIR/config.yml`
    #[arg(long, value_name = "DIR")]
    lumina: Option<PathBuf>,
}

impl Export {
    /// Writes what was asked for.
    pub fn write(self) -> Result<u8, Failure> {
        let run = RunFile::read(&self.run)?;
        let capture = Capture::open(self.run.join(files::CAPTURE)).map_err(Failure::environment)?;
        if let Some(path) = &self.pcapng {
            let about = export::pcapng::About {
                hardware: run
                    .recorded
                    .card
                    .as_ref()
                    .map_or_else(String::new, |c| format!("midwire card ({})", c.place)),
                os: run.recorded.host.clone(),
                application: format!("midwire {}", run.recorded.midwire),
                speed: speed(&run),
            };
            let mut out = create(path)?;
            let done = export::pcapng::write(&capture, &mut out, &about, |r| {
                midwire_control::comment(&run.recorded, r)
            })
            .map_err(Failure::environment)?;
            finish(out, path)?;
            let bare = if done.bare > 0 {
                format!(", {} of them without bytes", done.bare)
            } else {
                String::new()
            };
            say(&format!(
                "{}: {} packets{bare}",
                path.display(),
                done.packets
            ))?;
        }
        let senders = match (&self.csv, &self.parquet) {
            (None, None) => Senders::default(),
            _ => Senders::new(&midwire_control::inside::read(&self.run)?),
        };
        for (path, is_csv) in [(&self.csv, true), (&self.parquet, false)] {
            let Some(path) = path else { continue };
            let mut out = create(path)?;
            let records = match is_csv {
                true => export::csv::write(&capture, &senders, &mut out),
                false => export::parquet::write(&capture, &senders, &mut out),
            };
            let records = records.map_err(Failure::environment)?;
            finish(out, path)?;
            say(&format!("{}: {records} records", path.display()))?;
        }
        if let Some(path) = &self.lumina {
            let (done, whole) = lumina::export(&run, &self.run, path)?;
            say(&lumina_done(path, &done, whole))?;
        }
        Ok(0)
    }
}

/// What was exported, and what has no place in Lumina's layout.
fn lumina_done(path: &Path, done: &lumina::Exported, whole: bool) -> String {
    let mut text = format!(
        "{}: {} packets",
        path.display(),
        done.packets.iter().sum::<u64>()
    );
    for (count, what) in [
        (done.nameless, "with events that Lumina has no code for"),
        (done.cut, "left out, of which too few bytes were captured"),
        (
            done.others,
            "left out, which are not RoCEv2 over IPv4 without tags",
        ),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if !whole {
        text += "; no counters and queue pairs, which only one entry of rdma traffic has";
    }
    text
}

/// Bits per second of the ports, by the width of the card's data path.
fn speed(run: &RunFile) -> Option<u64> {
    let width = run
        .recorded
        .card
        .as_ref()?
        .parameters
        .get("data_width")?
        .as_u64()?;
    match width {
        512 => Some(100_000_000_000),
        64 => Some(10_000_000_000),
        _ => None,
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    File::create(path)
        .map(BufWriter::new)
        .map_err(|e| Failure::environment(format!("can't create {}: {e}", path.display())))
}

fn finish(mut out: BufWriter<File>, path: &Path) -> Result<(), Failure> {
    out.flush()
        .map_err(|e| Failure::environment(format!("can't write {}: {e}", path.display())))
}
