// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether two captures are the same, and where they part.

mod parting;
mod picture;

use midwire_trace::{Capture, Record};

pub use parting::{Parting, Step};
pub use picture::picture;

use crate::text::{Align::Left, columns};

/// What two captures have in common, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Records from the first on that are the same, with their snapshots.
    pub same: u64,
    /// The record after them, which is not.
    pub difference: Option<Difference>,
}

/// The first record that two captures do not share; nothing where a capture has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its number, from 1, as in reports and in pcapng.
    pub number: u64,
    /// In either capture.
    pub sides: [Option<Seen>; 2],
}

/// A packet as a capture has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its record.
    pub record: Record,
    /// First bytes of the frame.
    pub snapshot: Vec<u8>,
}

/// Compares captures, or their first records up to a number.
pub fn captures(captures: [&Capture; 2], most: Option<u64>) -> Comparison {
    let [mut first, mut second] = captures.map(Capture::by_time);
    for same in 0..most.unwrap_or(u64::MAX) {
        let sides = [first.next_entry(), second.next_entry()];
        if let [None, None] = sides {
            return Comparison {
                same,
                difference: None,
            };
        }
        let sides = sides.map(|entry| {
            let entry = entry?;
            Some((entry.record, entry.snapshot))
        });
        if sides[0] != sides[1] {
            let seen = |(record, snapshot): (Record, &[u8])| Seen {
                record,
                snapshot: snapshot.to_owned(),
            };
            return Comparison {
                same,
                difference: Some(Difference {
                    number: same + 1,
                    sides: sides.map(|side| side.map(seen)),
                }),
            };
        }
    }
    Comparison {
        same: most.unwrap_or(u64::MAX),
        difference: None,
    }
}

impl Difference {
    /// Both sides as a table, under their names.
    pub fn text(&self, names: [&str; 2]) -> String {
        let heading = [("", Left), (names[0], Left), (names[1], Left), ("", Left)];
        let [a, b] = [&self.sides[0], &self.sides[1]].map(|side| side.as_ref().map(fields));
        let rows = match (a, b) {
            (Some(a), Some(b)) => {
                let row = |((name, a), (_, b)): (Field, Field)| {
                    let mark = if a == b { "" } else { "differs" };
                    vec![name.to_owned(), a, b, mark.to_owned()]
                };
                let mut rows: Vec<_> = a.into_iter().zip(b).map(row).collect();
                rows.extend(self.byte());
                rows
            }
            (a, b) => {
                let ended = |side: &Option<Vec<Field>>| match side {
                    Some(_) => String::new(),
                    None => "has ended".to_owned(),
                };
                let mut rows = vec![vec![String::new(), ended(&a), ended(&b)]];
                let alone = |side: Option<Vec<Field>>| side.unwrap_or_default().into_iter();
                let left = |(name, value): Field| vec![name.to_owned(), value];
                let right = |(name, value): Field| vec![name.to_owned(), String::new(), value];
                rows.extend(alone(a).map(left).chain(alone(b).map(right)));
                rows
            }
        };
        columns(&heading, &rows)
    }

    /// The first byte of the snapshots that is not the same.
    fn byte(&self) -> Option<Vec<String>> {
        let [Some(a), Some(b)] = &self.sides else {
            return None;
        };
        let mut bytes = a.snapshot.iter().zip(&b.snapshot).enumerate();
        let (at, (a, b)) = bytes.find(|(_, (a, b))| a != b)?;
        let name = format!("byte {at} of the frame");
        let differs = "differs".to_owned();
        Some(vec![
            name,
            format!("{a:#04x}"),
            format!("{b:#04x}"),
            differs,
        ])
    }
}

type Field = (&'static str, String);

fn fields(seen: &Seen) -> Vec<Field> {
    let r = &seen.record;
    let number = |n: Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
    vec![
        ("time", r.time.to_string()),
        ("direction", r.lane.to_string()),
        ("tap", r.tap.to_string()),
        ("kind", format!("{} {}", r.proto, r.kind)),
        ("length", format!("{} bytes", r.length)),
        ("payload", format!("{} bytes", r.payload_len)),
        ("packet of the lane", r.packet_id.to_string()),
        ("connection", number(r.connection.map(u32::from))),
        ("f0 (sequence number)", r.f0.to_string()),
        ("f1 (acknowledgement)", r.f1.to_string()),
        ("f2 (window)", r.f2.to_string()),
        ("TCP flags", format!("{:#04x}", r.tcp_flags)),
        ("flags", r.flags.to_string()),
        ("slot", number(r.slot)),
        ("iteration", r.iteration.to_string()),
        ("actions", r.actions.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use midwire_trace::{BlockBuilder, Lane, Nanos};
    use std::fs;
    use tempfile::TempDir;

    fn at(ns: u64) -> Record {
        Record {
            time: Nanos(ns),
            ..Record::default()
        }
    }

    /// Records with a byte that fills their frames.
    pub fn capture(directory: &TempDir, name: &str, records: &[(Record, u8)]) -> Capture {
        let mut block = BlockBuilder::new(4096, 64).unwrap();
        for &(record, byte) in records {
            assert!(block.push(record, Some(&[byte; 60])));
        }
        let path = directory.path().join(name);
        fs::write(&path, block.finish(true, Nanos(0))).unwrap();
        Capture::open(path).unwrap()
    }

    fn compare(a: &[(Record, u8)], b: &[(Record, u8)], most: Option<u64>) -> Comparison {
        let directory = tempfile::tempdir().unwrap();
        let [a, b] = [("a", a), ("b", b)].map(|(name, all)| capture(&directory, name, all));
        captures([&a, &b], most)
    }

    #[test]
    fn the_order_of_writing_has_no_say() {
        let back = Record {
            lane: Lane::BtoA,
            ..at(20)
        };
        let (a, b) = ([(at(10), 1), (back, 2)], [(back, 2), (at(10), 1)]);
        let same = compare(&a, &b, None);
        assert_eq!((same.same, same.difference), (2, None));
    }

    #[test]
    fn what_differs_first_is_shown() {
        let a = [(at(10), 1), (at(20), 2), (at(30), 3)];
        let later = compare(&a, &[a[0], (at(23), 2), a[2]], None);
        assert_eq!(later.same, 1);
        let difference = later.difference.unwrap();
        assert_eq!(difference.number, 2);
        let text = difference.text(["one", "other"]);
        let differing: Vec<_> = text.lines().filter(|l| l.ends_with("differs")).collect();
        assert_eq!(differing.len(), 1, "{text}");
        assert!(differing[0].contains("20 ns") && differing[0].contains("23 ns"));

        let bytes = compare(&a, &[a[0], (at(20), 9), a[2]], None);
        let text = bytes.difference.unwrap().text(["one", "other"]);
        assert!(text.contains("byte 0 of the frame"), "{text}");
        assert_eq!(compare(&a, &[a[0], (at(20), 9)], Some(1)).difference, None);
    }

    #[test]
    fn a_capture_that_ends_early_differs() {
        let a = [(at(10), 1), (at(20), 2)];
        let difference = compare(&a, &a[..1], None).difference.unwrap();
        assert_eq!(difference.number, 2);
        assert!(difference.sides[0].is_some() && difference.sides[1].is_none());
        assert!(difference.text(["one", "other"]).contains("has ended"));
    }
}
