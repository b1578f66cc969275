// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate of an export.

use crate::Result;
use crate::card::frame;
use crate::report::Report;
use midwire_driver::Lane;
use midwire_trace::export::pcapng::{self, About};
use midwire_trace::{BlockBuilder, Capture, Nanos, Record};
use std::io::Write as _;
use std::time::Instant;

/// To pcapng.
pub fn export_rate(report: &mut Report) -> Result<()> {
    const RECORDS: u32 = 1_000_000;
    const SNAPSHOT: u32 = 128;
    report.section(
        "Export",
        &format!(
            "A capture of {RECORDS} packets with {SNAPSHOT} bytes of each to a pcapng file on the \
             disk of the temporary directory, until the disk has it, next to a plain write of as \
             many bytes.",
        ),
    );
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("capture.mwc");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    let data = frame(Lane::AtoB, 0, 1514);
    let mut builder = BlockBuilder::new(1 << 16, SNAPSHOT)?;
    for n in 0..RECORDS {
        let record = Record {
            time: Nanos(u64::from(n) * 1000),
            packet_id: n,
            length: data.len() as u16,
            ..Record::default()
        };
        if !builder.push(record, Some(&data)) {
            file.write_all(&builder.finish(false, record.time))?;
            builder.push(record, Some(&data));
        }
    }
    file.write_all(&builder.finish(true, Nanos(u64::from(RECORDS) * 1000)))?;
    file.into_inner()?.sync_all()?;
    let capture = Capture::open(&path)?;
    let about = About {
        hardware: String::new(),
        os: String::new(),
        application: "midwire".into(),
        speed: None,
    };
    let start = Instant::now();
    let mut out = std::io::BufWriter::with_capacity(
        1 << 20,
        std::fs::File::create(directory.path().join("out.pcapng"))?,
    );
    let done = pcapng::write(&capture, &mut out, &about, |_| None)?;
    out.flush()?;
    let out = out.into_inner()?;
    out.sync_all()?;
    let export = start.elapsed().as_secs_f64();
    let bytes = out.metadata()?.len();
    let plain = vec![0x5a; 1 << 20];
    let start = Instant::now();
    let mut file = std::fs::File::create(directory.path().join("plain"))?;
    for _ in 0..bytes >> 20 {
        file.write_all(&plain)?;
    }
    file.sync_all()?;
    let plain = start.elapsed().as_secs_f64() * bytes as f64 / (bytes >> 20 << 20) as f64;
    report.table(&["packets", "packets/s", "bytes/s", "of a plain write"]);
    report.row(&[
        done.packets.to_string(),
        format!("{:.2} M", done.packets as f64 / export / 1e6),
        format!("{:.2} GB", bytes as f64 / export / 1e9),
        format!("{:.0} %", 100.0 * plain / export),
    ]);
    Ok(())
}
