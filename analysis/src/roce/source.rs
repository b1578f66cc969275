// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for the analyzers: from pcap and pcapng files of any origin, and from the card's
//! captures.

use std::path::Path;

use midwire_trace::packet_file::{ETHERNET, FilePacket, PacketFile};
use midwire_trace::{Accounting, Actions, Capture, Error, Nanos, Tap};
use serde::{Deserialize, Serialize};

use crate::text::span;

use super::departures::Departures;
use super::{Analysis, Analyzer, Observed, Seen, Settings};

/// A file, read and analysed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    /// Packets in it.
    pub packets: u64,
    /// Of these, the ones whose link layer is not Ethernet.
    pub other_links: u64,
    /// First and last time, ns.
    pub span_ns: [u64; 2],
    /// What is missing of it, and why.
    pub cut: Option<String>,
    /// What was found.
    pub analysis: Analysis,
}

impl Read {
    /// For a person.
    pub fn text(&self) -> String {
        let tables = super::tables(&self.analysis);
        let tables: String = tables.iter().map(ToString::to_string).collect();
        let cut = self
            .cut
            .as_ref()
            .map_or_else(String::new, |cut| format!("\n         not whole: {cut}"));
        let verdict = match self.analysis.findings.len() {
            0 => "PASS  as the specification has it".to_owned(),
            1 => "FAIL  1 finding".to_owned(),
            n => format!("FAIL  {n} findings"),
        };
        format!("{tables}Capture  {}{cut}\n{verdict}", self.summary())
    }

    /// What was read, in a sentence.
    pub fn summary(&self) -> String {
        let analysis = &self.analysis;
        let [first, last] = self.span_ns;
        let mut text = format!(
            "{} packets in {}, {} of them RoCEv2",
            self.packets,
            span(last.saturating_sub(first)),
            analysis.packets
        );
        for (count, what) in [
            (analysis.broken, "with a wrong ICRC"),
            (analysis.other_transports, "of other transports"),
            (analysis.unpaired, "that answer nothing seen"),
            (self.other_links, "of other links"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }
}

/// Makes a span hold a time.
fn widen(span: &mut Option<[u64; 2]>, time: Nanos) {
    let [first, last] = span.unwrap_or([time.0; 2]);
    *span = Some([first.min(time.0), last.max(time.0)]);
}

/// Reads a pcap or pcapng file. One that is damaged is read up to there.
pub fn packet_file(path: &Path, settings: Settings) -> Result<Read, Error> {
    let mut file = PacketFile::open(path)?;
    let mut analyzer = Analyzer::new(settings);
    let mut packet = FilePacket::default();
    let mut number = 0;
    let mut other_links = 0;
    let mut span: Option<[u64; 2]> = None;
    let cut = loop {
        match file.read(&mut packet) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
        number += 1;
        let time = packet.time;
        widen(&mut span, time);
        if file.interfaces()[packet.interface].link_type != ETHERNET {
            other_links += 1;
            continue;
        }
        let length = packet.length as usize;
        if let Some(p) = Observed::read(number, time, Seen::Passing, &packet.data, length) {
            analyzer.packet(&p);
        }
    };
    Ok(Read {
        packets: number,
        other_links,
        span_ns: span.unwrap_or_default(),
        cut,
        analysis: analyzer.finish(),
    })
}

/// Reads a capture of the card. Packets are numbered from 1 in the order of time, records of both
/// taps counted, as they are in the pcapng export.
pub fn capture(capture: &Capture, settings: Settings) -> Read {
    let account = Accounting::of(capture);
    let mut analyzer = Analyzer::new(settings);
    let mut departures = Departures::read(capture);
    let mut entries = capture.by_time();
    let mut number = 0;
    let mut span: Option<[u64; 2]> = None;
    while let Some(entry) = entries.next_entry() {
        number += 1;
        let record = &entry.record;
        let time = Nanos(record.time.0);
        widen(&mut span, time);
        let seen = match record.tap {
            Tap::Egress => Seen::Delivered,
            Tap::Ingress if record.actions.is_empty() => Seen::Passing,
            Tap::Ingress => Seen::Sent,
        };
        let length = usize::from(record.length);
        if let Some(mut p) = Observed::read(number, time, seen, entry.snapshot, length) {
            if seen == Seen::Passing {
                p.arrives = departures.of(record);
            }
            p.intact &= seen != Seen::Delivered || !record.actions.contains(Actions::CORRUPT);
            analyzer.packet(&p);
        }
    }
    Read {
        packets: number,
        other_links: 0,
        span_ns: span.unwrap_or_default(),
        cut: (!account.complete).then(|| match account.problems.as_slice() {
            [] => "records were lost".to_owned(),
            problems => problems.join(" "),
        }),
        analysis: analyzer.finish(),
    }
}
