// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many records a second are read, accounted for, named and exported.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::time::Instant;

use midwire_trace::export::{csv, pcapng};
use midwire_trace::identity::Identifier;
use midwire_trace::inside::Senders;
use midwire_trace::{Accounting, Block, BlockBuilder, Capture, Nanos, Proto, Record};

const RECORDS: u32 = 4_000_000;

fn measure<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let rate = f64::from(RECORDS) / start.elapsed().as_secs_f64() / 1e6;
    println!("{what:<40} {rate:8.1} M records/s");
    result
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = BlockBuilder::new(1 << 20, 0)?;
    let mut bytes = Vec::new();
    for id in 0..RECORDS {
        let record = Record {
            time: Nanos(u64::from(id) * 7),
            packet_id: id,
            proto: Proto::Tcp,
            connection: Some((id % 16) as u16),
            f0: id / 16 * 1448,
            payload_len: 1448,
            tcp_flags: 0x10,
            ..Record::default()
        };
        if !builder.push(record, None) {
            bytes.extend(builder.finish(false, record.time));
            builder.push(record, None);
        }
        builder.counters().rx_frames[0] += 1;
        builder.counters().tx_frames[0] += 1;
    }
    bytes.extend(builder.finish(true, Nanos::ZERO));
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("capture.mwc");
    fs::write(&path, &bytes)?;
    let capture = Capture::open(&path)?;

    let sum = |sum: u64, record: &Record| sum.wrapping_add(record.time.0 ^ u64::from(record.f0));
    let total = measure("blocks in memory", || -> midwire_trace::Result<u64> {
        let mut total = 0;
        for bytes in bytes.chunks(1 << 20) {
            total = Block::parse(bytes)?
                .records()
                .fold(total, |t, entry| sum(t, &entry.record));
        }
        Ok(total)
    })?;
    let read = measure("blocks of a file", || {
        let (mut blocks, mut total) = (capture.blocks(), 0);
        while let Some(block) = blocks.next_block() {
            total = block
                .records()
                .fold(total, |t, entry| sum(t, &entry.record));
        }
        total
    });
    let single = measure("records of a file", || {
        let (mut entries, mut total) = (capture.entries(), 0);
        while let Some(entry) = entries.next_entry() {
            total = sum(total, &entry.record);
        }
        total
    });
    let merged = measure("records of a file in order of time", || {
        let (mut entries, mut total) = (capture.by_time(), 0);
        while let Some(entry) = entries.next_entry() {
            total = sum(total, &entry.record);
        }
        total
    });
    assert!([read, single, merged].iter().all(|other| *other == total));
    assert!(measure("accounting", || Accounting::of(&capture)).complete);
    let mut twin = Identifier::new();
    measure("identities", || {
        let mut blocks = capture.blocks();
        while let Some(block) = blocks.next_block() {
            for entry in block.records() {
                twin.record(&entry.record);
            }
        }
    });
    let out = BufWriter::new(File::create(dir.path().join("out.pcapng"))?);
    measure("pcapng", || {
        pcapng::write(&capture, out, &pcapng::About::default(), |_| None)
    })?;
    measure("csv", || {
        csv::write(&capture, &Senders::default(), io::sink())
    })?;
    Ok(())
}
