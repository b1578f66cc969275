// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture as a table: a row a record in the order in which they were written, its columns the
//! record's fields and what the kernel of its sender was known to hold. Columns stay as they are;
//! new ones go to the end.

use std::borrow::Cow;
use std::fmt::Display;

use crate::block::Entry;
use crate::capture::Capture;
use crate::error::Result;
use crate::inside::{Moment, Senders};

/// What a row is made of.
pub(super) struct Row<'a> {
    entry: &'a Entry<'a>,
    known: Option<&'a Moment>,
}

/// What a column holds of a row.
pub(super) enum Value {
    Number(fn(&Row) -> Option<u64>),
    Text(fn(&Row) -> Option<Cow<'static, str>>),
}
use Value::{Number, Text};

fn number(n: impl Into<u64>) -> Option<u64> {
    Some(n.into())
}

fn maybe(n: Option<impl Into<u64>>) -> Option<u64> {
    n.map(Into::into)
}

fn word(word: &'static str) -> Option<Cow<'static, str>> {
    Some(Cow::Borrowed(word))
}

fn text(value: impl Display) -> Option<Cow<'static, str>> {
    Some(Cow::Owned(value.to_string()))
}

/// By their names.
pub(super) const COLUMNS: &[(&str, Value)] = &[
    ("seq", Number(|r| number(r.entry.seq))),
    ("time_ns", Number(|r| number(r.entry.record.time.0))),
    ("lane", Text(|r| word(r.entry.record.lane.as_str()))),
    ("tap", Text(|r| word(r.entry.record.tap.as_str()))),
    ("protocol", Text(|r| word(r.entry.record.proto.as_str()))),
    ("kind", Text(|r| word(r.entry.record.kind.as_str()))),
    ("flags", Text(|r| text(r.entry.record.flags))),
    ("length", Number(|r| number(r.entry.record.length))),
    ("packet_id", Number(|r| number(r.entry.record.packet_id))),
    ("connection", Number(|r| maybe(r.entry.record.connection))),
    (
        "payload_len",
        Number(|r| number(r.entry.record.payload_len)),
    ),
    ("f0", Number(|r| number(r.entry.record.f0))),
    ("f1", Number(|r| number(r.entry.record.f1))),
    ("f2", Number(|r| number(r.entry.record.f2))),
    ("tcp_flags", Number(|r| number(r.entry.record.tcp_flags))),
    ("iteration", Number(|r| number(r.entry.record.iteration))),
    ("slot", Number(|r| maybe(r.entry.record.slot))),
    ("actions", Text(|r| text(r.entry.record.actions))),
    (
        "snapshot_len",
        Number(|r| number(r.entry.snapshot.len() as u64)),
    ),
    ("cwnd", Number(|r| maybe(r.known?.cwnd))),
    ("ssthresh", Number(|r| maybe(r.known?.ssthresh))),
    ("srtt_us", Number(|r| maybe(r.known?.srtt_us))),
    ("snd_wnd", Number(|r| maybe(r.known?.snd_wnd))),
    ("rcv_wnd", Number(|r| maybe(r.known?.rcv_wnd))),
    ("snd_una", Number(|r| maybe(r.known?.snd_una))),
    ("snd_nxt", Number(|r| maybe(r.known?.snd_nxt))),
    ("ca_state", Text(|r| word(r.known?.ca_state?.as_str()))),
    ("state", Text(|r| word(r.known?.state?.as_str()))),
    ("rto_us", Number(|r| maybe(r.known?.rto_us))),
];

/// Calls `hear` with each row of a capture, up to damage if there is any; returns their number.
pub(super) fn rows(
    capture: &Capture,
    senders: &Senders,
    mut hear: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<u64> {
    let mut entries = capture.entries();
    let mut count = 0;
    while let Some(entry) = entries.next_entry() {
        let known = senders.at(&entry.record);
        hear(&Row {
            entry: &entry,
            known,
        })?;
        count += 1;
    }
    Ok(count)
}
