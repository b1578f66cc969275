// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as CSV: a header line, then a line a record in the order in which they were written.
//! The columns are the record's fields, and stay as they are; new ones go to the end.

use std::fmt::Display;
use std::io::Write;

use crate::block::Entry;
use crate::capture::Capture;
use crate::error::Result;

/// The header line.
pub const HEADER: &str = "seq,time_ns,lane,tap,protocol,kind,flags,length,packet_id,connection,\
                          payload_len,f0,f1,f2,tcp_flags,iteration,slot,actions,snapshot_len";

/// Writes the capture, up to damage if there is any; returns the number of records.
pub fn write(capture: &Capture, mut out: impl Write) -> Result<u64> {
    writeln!(out, "{HEADER}")?;
    let mut entries = capture.entries();
    let mut count = 0;
    while let Some(entry) = entries.next_entry() {
        line(&entry, &mut out)?;
        count += 1;
    }
    out.flush()?;
    Ok(count)
}

fn line(entry: &Entry<'_>, out: &mut impl Write) -> Result<()> {
    let r = &entry.record;
    write!(
        out,
        "{},{},{},{},{},{},",
        entry.seq, r.time.0, r.lane, r.tap, r.proto, r.kind
    )?;
    write!(
        out,
        "{},{},{},{},",
        r.flags,
        r.length,
        r.packet_id,
        or_empty(&r.connection)
    )?;
    write!(out, "{},{},{},{},", r.payload_len, r.f0, r.f1, r.f2)?;
    write!(
        out,
        "{},{},{},",
        r.tcp_flags,
        r.iteration,
        or_empty(&r.slot)
    )?;
    writeln!(out, "{},{}", r.actions, entry.snapshot.len())?;
    Ok(())
}

fn or_empty<T: Display>(value: &Option<T>) -> &dyn Display {
    match value {
        Some(value) => value,
        None => &"",
    }
}
