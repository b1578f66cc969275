// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as CSV: a header line, then a line a record.

use std::io::Write;

use super::table::{COLUMNS, Value, rows};
use crate::capture::Capture;
use crate::error::Result;
use crate::inside::Senders;

/// Writes the capture, up to damage if there is any; returns the number of records.
pub fn write(capture: &Capture, senders: &Senders, mut out: impl Write) -> Result<u64> {
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    writeln!(out, "{}", names.join(","))?;
    let count = rows(capture, senders, |row| {
        for (n, (_, value)) in COLUMNS.iter().enumerate() {
            if n > 0 {
                out.write_all(b",")?;
            }
            match value {
                Value::Number(of) => {
                    if let Some(number) = of(row) {
                        write!(out, "{number}")?;
                    }
                }
                Value::Text(of) => out.write_all(of(row).unwrap_or_default().as_bytes())?,
            }
        }
        Ok(writeln!(out)?)
    })?;
    out.flush()?;
    Ok(count)
}
