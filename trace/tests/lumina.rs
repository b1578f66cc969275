// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lumina's layout, read by the crate pcap-file and by offsets that its own readers use, and by
//! tshark where it is installed.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use midwire_trace::build::{self, Path};
use midwire_trace::export::lumina::{self, Exported};
use midwire_trace::packet::{Bth, Packet, opcode};
use midwire_trace::{Actions, BlockBuilder, Capture, Flags, Lane, Nanos, Record, Tap};
use pcap_file::pcap::PcapReader;

const T0: u64 = 0x17_9abc_dead_beef;

fn frame(path: &Path, psn: u32, payload: usize) -> Vec<u8> {
    let bth = Bth {
        opcode: opcode::SEND_ONLY,
        byte1: Bth::MIG_REQ,
        pkey: 0xffff,
        dest_qp: 17,
        psn,
        ..Bth::default()
    };
    build::roce(path, &bth, &[], &vec![0x6d; payload])
}

fn record(n: u32, lane: Lane, frame: &[u8], actions: Actions) -> Record {
    let packet = Packet::parse(frame);
    Record {
        lane,
        packet_id: n,
        time: Nanos(T0 + 1000 * u64::from(n)),
        length: frame.len() as u16,
        proto: packet.proto(),
        slot: (!actions.is_empty()).then_some(3),
        actions,
        ..Record::default()
    }
}

/// Each event, and all that has no place in Lumina's layout.
fn capture(snapshot: u32) -> Capture {
    let (there, back) = (Path::ipv4(50_000, 0), Path::ipv4(50_000, 0).reversed());
    let tagged = Path {
        vlan: vec![5],
        ..there.clone()
    };
    let mut records = Vec::new();
    let mut push = |lane, path: &Path, actions| {
        let n = records.len() as u32;
        let frame = frame(path, n, 200);
        records.push((record(n, lane, &frame, actions), frame));
    };
    push(Lane::AtoB, &there, Actions::default());
    push(Lane::AtoB, &there, Actions::DROP);
    push(Lane::BtoA, &back, Actions::ECN);
    push(Lane::AtoB, &there, Actions::CORRUPT);
    push(Lane::AtoB, &tagged, Actions::default());
    push(Lane::AtoB, &Path::ipv6(50_000, 0), Actions::default());
    push(Lane::AtoB, &there, Actions::DELAY);
    push(Lane::AtoB, &there, Actions::default());
    records[7].0.flags = Flags::ERROR;
    let udp = build::udp(&Path::ipv4(1, 2), b"no RoCE");
    records.push((record(8, Lane::BtoA, &udp, Actions::default()), udp));
    // What left is not told twice.
    let mut left = records[3].clone();
    left.0.tap = Tap::Egress;
    left.0.time = Nanos(T0 + 9_000);
    records.push(left);

    let mut builder = BlockBuilder::new(1 << 14, snapshot).unwrap();
    for (record, frame) in &records {
        assert!(builder.push(*record, (snapshot > 0).then_some(&frame[..])));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture.mwc");
    fs::write(&path, builder.finish(true, Nanos(0))).unwrap();
    Capture::open(&path).unwrap()
}

fn export(snapshot: u32) -> (Exported, Vec<u8>) {
    let mut out = Vec::new();
    let done = lumina::write(&capture(snapshot), &mut out).unwrap();
    (done, out)
}

/// A number of six bytes.
fn six(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sum_of_words(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) as u16 + (sum >> 16) as u16
}

#[test]
fn header_fields_tell_what_the_card_noted() {
    let (done, bytes) = export(128);
    let expected = Exported {
        packets: [4, 1],
        dropped: [1, 0],
        nameless: 1,
        cut: 0,
        others: 4,
    };
    assert_eq!(done, expected);
    let mut reader = PcapReader::new(&bytes[..]).unwrap();
    let ids = [0, 1, 2, 3, 6];
    let events = [0, 1, 2, 3, 0];
    let mut n = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let data = &packet.data;
        assert_eq!(data.len(), 128);
        assert_eq!(packet.orig_len, 14 + 20 + 8 + 12 + 200 + 4);
        let time = T0 + 1000 * ids[n];
        assert_eq!(six(&data[..6]), time & 0xffff_ffff_ffff, "packet {n}");
        assert_eq!(packet.timestamp.as_nanos(), u128::from(time));
        assert_eq!(six(&data[6..12]), n as u64 + 1);
        assert_eq!(data[12..14], [8, 0]);
        let ip = &data[14..34];
        assert_eq!(ip[8], events[n], "packet {n}");
        assert_eq!(ip[1] & 3, if events[n] == 2 { 3 } else { 2 });
        assert_eq!(sum_of_words(ip), 0xffff);
        let from = Ipv4Addr::from([ip[12], ip[13], ip[14], ip[15]]);
        assert_eq!(from.octets()[3], if n == 2 { 2 } else { 1 });
        // To RoCE's port; the packet as it came in from there on.
        assert_eq!(data[36..38], 4791u16.to_be_bytes());
        assert_eq!(six(&data[51..54]), ids[n]);
        n += 1;
    }
    assert_eq!(n, 5);
}

#[test]
fn packets_without_their_headers_are_left_out() {
    let (done, bytes) = export(0);
    assert_eq!((done.packets, done.cut), ([0, 0], 7));
    assert_eq!(bytes.len(), 24);
}

#[test]
fn tshark_reads_it() {
    let (_, bytes) = export(128);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("merge.pcap");
    fs::write(&path, bytes).unwrap();
    let fields = ["eth.src", "ip.ttl", "udp.dstport", "infiniband.bth.psn"];
    let asked = fields.iter().flat_map(|field| ["-e", field]);
    let tshark = Command::new("tshark")
        .args([
            "-o",
            "ip.check_checksum:TRUE",
            "-Y",
            "ip.checksum.status == good",
            "-T",
            "fields",
        ])
        .args(asked)
        .arg("-r")
        .arg(&path)
        .output();
    let Ok(tshark) = tshark else {
        println!("skipped: tshark is not installed");
        return;
    };
    let text = String::from_utf8(tshark.stdout).unwrap();
    let expected = [(1, 0, 0), (2, 1, 1), (3, 2, 2), (4, 3, 3), (5, 0, 6)]
        .map(|(n, event, psn)| format!("00:00:00:00:00:0{n}\t{event}\t4791\t{psn}\n"));
    assert_eq!(
        text,
        expected.concat(),
        "{}",
        String::from_utf8_lossy(&tshark.stderr)
    );
}
