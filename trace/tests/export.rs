// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports, read by independent programs: the crate pcap-parser, and tshark.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use bytes::Bytes;
use midwire_trace::build::{self, TcpSegment};
use midwire_trace::export::pcapng::{self, About};
use midwire_trace::export::{csv, parquet};
use midwire_trace::inside::{CaState, Event, Moment, Senders};
use midwire_trace::packet::{Bth, Packet, opcode, tcp_flags};
use midwire_trace::{Actions, BlockBuilder, Capture, Flags, Lane, Nanos, Port, Proto, Record, Tap};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, PcapNGOption, PcapNGReader};

const T0: u64 = 1_700_000_000_123_456_789;

/// A packet of the story: its record and its frame.
type Told = (Record, Vec<u8>);

fn record(lane: Lane, id: u32, time: u64, frame: &[u8]) -> Record {
    let packet = Packet::parse(frame);
    let mut record = Record {
        lane,
        packet_id: id,
        time: Nanos(time),
        length: frame.len() as u16,
        proto: packet.proto(),
        payload_len: packet.payload_len as u16,
        ..Record::default()
    };
    if let Some(tcp) = packet.tcp() {
        (record.f0, record.f1, record.f2) = (tcp.seq, tcp.ack, tcp.window);
        (record.tcp_flags, record.connection) = (tcp.flags, Some(0));
        record.kind = midwire_trace::packet::tcp_kind(tcp.flags, packet.payload_len);
    }
    record
}

/// A handshake, two segments of which the second is marked, and a RoCE packet with a bad FCS.
fn story() -> Vec<Told> {
    let path = build::Path::ipv4(40000, 5001);
    let back = path.reversed();
    let tcp = |path: &build::Path, seq, ack, flags, payload: &[u8]| {
        let segment = TcpSegment {
            seq,
            ack,
            flags,
            window: 1000,
            ..TcpSegment::default()
        };
        build::tcp(path, &segment, payload)
    };
    let data = vec![0x41; 1000];
    let frames = [
        (Lane::AtoB, tcp(&path, 999, 0, tcp_flags::SYN, b"")),
        (
            Lane::BtoA,
            tcp(&back, 4999, 1000, tcp_flags::SYN | tcp_flags::ACK, b""),
        ),
        (Lane::AtoB, tcp(&path, 1000, 5000, tcp_flags::ACK, b"")),
        (
            Lane::AtoB,
            tcp(&path, 1000, 5000, tcp_flags::ACK | tcp_flags::PSH, &data),
        ),
        (
            Lane::AtoB,
            tcp(&path, 2000, 5000, tcp_flags::ACK | tcp_flags::PSH, &data),
        ),
        (Lane::BtoA, tcp(&back, 5000, 3000, tcp_flags::ACK, b"")),
    ];
    let mut ids = [10, 20];
    let mut told: Vec<Told> = Vec::new();
    for (i, (lane, frame)) in frames.into_iter().enumerate() {
        let id = &mut ids[lane.index()];
        told.push((record(lane, *id, T0 + 1_000 * i as u64, &frame), frame));
        *id += 1;
    }
    let (event, frame) = &mut told[4];
    (event.slot, event.iteration, event.actions) = (Some(3), 1, Actions::ECN);
    let mut marked = path.clone();
    marked.traffic_class = 3;
    let segment = TcpSegment {
        seq: 2000,
        ack: 5000,
        flags: tcp_flags::ACK | tcp_flags::PSH,
        window: 1000,
        options: vec![],
    };
    let after = (
        Record {
            tap: Tap::Egress,
            time: Nanos(T0 + 4_300),
            ..*event
        },
        build::tcp(&marked, &segment, &data),
    );
    assert_eq!(after.1.len(), frame.len());
    told.insert(5, after);
    let bth = Bth {
        opcode: opcode::SEND_ONLY,
        byte1: 0x40,
        pkey: 0xffff,
        dest_qp: 17,
        psn: 7,
        ..Bth::default()
    };
    let roce = build::roce(&build::Path::ipv4(50000, 0), &bth, &[], &[0x6d; 64]);
    let mut bad = record(Lane::AtoB, 16, T0 + 9_000, &roce);
    bad.flags = Flags::ERROR;
    told.push((bad, roce));
    told
}

/// Writes the story with every record's frame as `snapshot` says: its length, or none at all.
fn capture(dir: &Path, snapshot: Option<u32>) -> Capture {
    let mut builder = BlockBuilder::new(1 << 14, snapshot.unwrap_or(0)).unwrap();
    for (record, frame) in story() {
        assert!(builder.push(record, snapshot.map(|_| &frame[..])));
    }
    let counters = builder.counters();
    counters.rx_frames = [7, 2];
    counters.lost_ingress = [2, 0];
    counters.tx_frames = [7, 2];
    let path = dir.join("capture.mwc");
    fs::write(&path, builder.finish(true, Nanos(0))).unwrap();
    Capture::open(&path).unwrap()
}

fn export(dir: &Path, snapshot: Option<u32>) -> PathBuf {
    let about = About {
        hardware: "virtual card".into(),
        os: "Linux".into(),
        application: "midwire".into(),
        speed: Some(100_000_000_000),
    };
    let capture = capture(dir, snapshot);
    let path = dir.join("out.pcapng");
    let describe = |r: &Record| {
        let slot = r.slot?;
        Some(format!(
            "event {slot}: {}, connection 0 packet 2, iteration {}",
            r.actions, r.iteration
        ))
    };
    let out = File::create(&path).unwrap();
    let exported = pcapng::write(&capture, out, &about, describe).unwrap();
    assert_eq!(exported.packets, 8);
    assert_eq!(exported.bare, if snapshot.is_none() { 8 } else { 0 });
    path
}

#[derive(Debug, Default)]
struct Seen {
    interfaces: Vec<(String, u64)>,
    packets: Vec<(u32, u64, u32, Vec<u8>)>,
    ids: Vec<u64>,
    flags: Vec<u32>,
    lost: Vec<u64>,
    verdicts: Vec<Vec<u8>>,
    comments: Vec<String>,
    statistics: Vec<(u32, u64, u64)>,
}

/// An option's value without its pad.
fn exact<'a>(option: &'a PcapNGOption<'_>) -> &'a [u8] {
    &option.value()[..usize::from(option.len)]
}

fn parse(path: &Path) -> Seen {
    let mut reader = PcapNGReader::new(1 << 20, File::open(path).unwrap()).unwrap();
    let mut seen = Seen::default();
    let u64_of = |v: &[u8]| u64::from_le_bytes(v[..8].try_into().unwrap());
    loop {
        match reader.next() {
            Ok((used, block)) => {
                let PcapBlockOwned::NG(block) = block else {
                    panic!("not pcapng")
                };
                match block {
                    Block::SectionHeader(shb) => {
                        let texts = shb
                            .options
                            .iter()
                            .filter(|o| o.code != OptionCode::EndOfOpt);
                        let texts: Vec<_> = texts.map(exact).collect();
                        assert_eq!(texts, [&b"virtual card"[..], b"Linux", b"midwire"]);
                    }
                    Block::InterfaceDescription(idb) => {
                        assert_eq!((idb.linktype.0, idb.if_tsresol), (1, 9));
                        let get = |code| {
                            idb.options
                                .iter()
                                .find(|o| o.code == OptionCode(code))
                                .map(exact)
                                .unwrap()
                        };
                        let name = String::from_utf8(get(2).to_vec()).unwrap();
                        seen.interfaces.push((name, u64_of(get(8))));
                    }
                    Block::EnhancedPacket(epb) => {
                        let time = u64::from(epb.ts_high) << 32 | u64::from(epb.ts_low);
                        let data = epb.data[..epb.caplen as usize].to_vec();
                        seen.packets.push((epb.if_id, time, epb.origlen, data));
                        for option in &epb.options {
                            let value = exact(option);
                            match option.code.0 {
                                0 => {}
                                1 => seen
                                    .comments
                                    .push(String::from_utf8(value.to_vec()).unwrap()),
                                2 => seen
                                    .flags
                                    .push(u32::from_le_bytes(value.try_into().unwrap())),
                                4 => seen.lost.push(u64_of(value)),
                                5 => seen.ids.push(u64_of(value)),
                                7 => seen.verdicts.push(value.to_vec()),
                                other => panic!("option {other}"),
                            }
                        }
                    }
                    Block::InterfaceStatistics(isb) => {
                        let get = |code| {
                            let o = isb.options.iter().find(|o| o.code == OptionCode(code));
                            u64_of(o.map(exact).unwrap())
                        };
                        seen.statistics.push((isb.if_id, get(4), get(5)));
                    }
                    other => panic!("{other:?}"),
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return seen,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn pcap_parser_reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let seen = parse(&export(dir.path(), Some(10240)));
    let names: Vec<_> = seen
        .interfaces
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "port A ingress",
            "port A egress",
            "port B ingress",
            "port B egress"
        ]
    );
    assert!(
        seen.interfaces
            .iter()
            .all(|(_, speed)| *speed == 100_000_000_000)
    );
    for ((interface, time, length, data), (record, frame)) in seen.packets.iter().zip(story()) {
        let expected = match (record.lane, record.tap) {
            (Lane::AtoB, Tap::Ingress) => 0,
            (Lane::BtoA, Tap::Egress) => 1,
            (Lane::BtoA, Tap::Ingress) => 2,
            (Lane::AtoB, Tap::Egress) => 3,
        };
        assert_eq!((*interface, *time), (expected, record.time.0));
        assert_eq!((*length as usize, data), (frame.len(), &frame));
    }
    let b = 1 << 32;
    assert_eq!(seen.ids, [10, b + 20, 11, 12, 13, 13, b + 21, 16]);
    assert_eq!(seen.flags, [1, 1, 1, 1, 1, 2, 1, 1 | 1 << 24]);
    assert_eq!(seen.lost, [2]);
    assert_eq!(seen.verdicts, [[0, 2], [0, 2]]);
    assert_eq!(
        seen.comments,
        ["event 3: ecn, connection 0 packet 2, iteration 1"; 2]
    );
    assert_eq!(
        seen.statistics,
        [(0, 7, 2), (1, 0, 0), (2, 2, 0), (3, 1, 0)]
    );
}

#[test]
fn frames_cut_by_the_snapshot_say_so_and_bare_ones_tell_their_record() {
    let dir = tempfile::tempdir().unwrap();
    let cut = parse(&export(dir.path(), Some(96)));
    for ((_, _, length, data), (_, frame)) in cut.packets.iter().zip(story()) {
        assert_eq!(*length as usize, frame.len());
        assert_eq!(data[..], frame[..frame.len().min(96)]);
    }
    let bare = parse(&export(dir.path(), None));
    assert!(
        bare.packets
            .iter()
            .all(|(_, _, length, data)| data.is_empty() && *length >= 54)
    );
    assert_eq!(
        bare.comments[3],
        "no snapshot; tcp data, connection 0, seq 1000 ack 5000 window 1000 flags 0x18, payload 1000"
    );
    assert_eq!(
        bare.comments.last().unwrap(),
        "no snapshot; roce other, opcode 0x00 psn 0, payload 64"
    );
}

/// Runs tshark; `None`, told on stdout, when there is none.
fn tshark(file: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(file)
        .args(args)
        .output();
    match output {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: tshark is not installed, exported files were not read by it");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn tshark_finds_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    for snapshot in [Some(10240), Some(96), None] {
        let file = export(dir.path(), snapshot);
        let Some(faults) = tshark(
            &file,
            &["-Y", "_ws.malformed || _ws.expert.severity == error"],
        ) else {
            return;
        };
        assert_eq!(faults, "", "snapshot {snapshot:?}");
        let fields = [
            "frame.time_epoch",
            "frame.len",
            "frame.cap_len",
            "frame.interface_name",
        ];
        let fields = fields
            .into_iter()
            .chain(["frame.packet_id", "frame.comment"]);
        let mut args = vec!["-T", "fields", "-E", "separator=|"];
        fields.for_each(|field| args.extend(["-e", field]));
        let lines = tshark(&file, &args).unwrap();
        assert_eq!(lines.lines().count(), 8);
        for (line, (record, frame)) in lines.lines().zip(story()) {
            let time = format!(
                "{}.{:09}",
                record.time.0 / 1_000_000_000,
                record.time.0 % 1_000_000_000
            );
            let captured = snapshot.map_or(0, |s| frame.len().min(s as usize));
            let (port, tap) = match record.tap {
                Tap::Ingress => (record.lane.port_in(), "ingress"),
                Tap::Egress => (record.lane.port_out(), "egress"),
            };
            let start = format!(
                "{time}|{}|{captured}|port {port} {tap}|{}|",
                frame.len(),
                record.packet_key()
            );
            assert!(line.starts_with(&start), "{line} is not {start}");
            let told = line.contains("event 3: ecn, connection 0 packet 2, iteration 1");
            assert_eq!(told, record.slot.is_some(), "{line}");
        }
    }
}

#[test]
fn tshark_dissects_tcp_as_it_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let file = export(dir.path(), Some(10240));
    let fields = [
        "tcp.seq_raw",
        "tcp.ack_raw",
        "tcp.window_size_value",
        "tcp.len",
    ];
    let mut args = vec!["-Y", "tcp", "-T", "fields", "-E", "separator=|"];
    for check in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"] {
        args.extend(["-o", check]);
    }
    for field in fields
        .into_iter()
        .chain(["tcp.checksum.status", "ip.checksum.status"])
    {
        args.extend(["-e", field]);
    }
    let Some(lines) = tshark(&file, &args) else {
        return;
    };
    let tcp: Vec<_> = story()
        .into_iter()
        .filter(|(r, _)| r.proto == Proto::Tcp)
        .collect();
    assert_eq!(lines.lines().count(), tcp.len());
    for (line, (r, _)) in lines.lines().zip(tcp) {
        assert_eq!(
            line,
            format!("{}|{}|{}|{}|1|1", r.f0, r.f1, r.f2, r.payload_len)
        );
    }
    let psn = tshark(
        &file,
        &[
            "-Y",
            "infiniband",
            "-T",
            "fields",
            "-e",
            "infiniband.bth.psn",
        ],
    );
    assert_eq!(psn.unwrap().trim(), "7");
}

/// What both senders know: A's window grows, then it recovers.
fn senders() -> Senders {
    let at = |ns, host| Moment {
        connection: Some(0),
        ..Moment::new(Nanos(T0 + ns), host, Event::Probe, 1)
    };
    let mut moments = [
        at(100, Port::B),
        at(1_000, Port::A),
        at(2_500, Port::A),
        at(4_300, Port::A),
        at(4_301, Port::A),
    ];
    for (moment, cwnd) in moments.iter_mut().zip([7, 10, 11, 0, 99]) {
        moment.cwnd = (cwnd > 0).then_some(cwnd);
    }
    moments[1].srtt_us = Some(20);
    moments[1].rto_us = Some(204_000);
    moments[3].ca_state = Some(CaState::Recovery);
    Senders::new(&moments)
}

#[test]
fn csv_has_a_line_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path(), Some(96));
    let mut out = Vec::new();
    let known = senders();
    assert_eq!(csv::write(&capture, &known, &mut out).unwrap(), 8);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "seq,time_ns,lane,tap,protocol,kind,flags,length,packet_id,connection,payload_len,f0,f1,f2,\
         tcp_flags,iteration,slot,actions,snapshot_len,cwnd,ssthresh,srtt_us,snd_wnd,rcv_wnd,\
         snd_una,snd_nxt,ca_state,state,rto_us"
    );
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
    assert_eq!(
        lines[6],
        "5,1700000000123461089,a-to-b,egress,tcp,data,snapshot,1054,13,0,1000,2000,5000,1000,24,1,3,ecn,96,11,,20,,,,,recovery,,204000"
    );
    assert_eq!(
        lines[8],
        "7,1700000000123465789,a-to-b,ingress,roce,other,error+snapshot,122,16,,64,0,0,0,0,0,,-,96,,,,,,,,,,"
    );
    let window = |line: &str| line.split(',').nth(19).map(str::to_owned);
    let windows: Vec<_> = lines[1..].iter().filter_map(|line| window(line)).collect();
    assert_eq!(windows, ["", "7", "10", "11", "11", "11", "7", ""]);
}

#[test]
fn parquet_has_the_rows_of_csv() {
    let dir = tempfile::tempdir().unwrap();
    let capture = capture(dir.path(), Some(96));
    let (mut lines, mut file) = (Vec::new(), Vec::new());
    csv::write(&capture, &senders(), &mut lines).unwrap();
    assert_eq!(parquet::write(&capture, &senders(), &mut file).unwrap(), 8);
    let lines = String::from_utf8(lines).unwrap();
    let mut lines = lines.lines();
    let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
    let mut rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    let first = rows.next().unwrap();
    let names: Vec<_> = first.get_column_iter().map(|(name, _)| &**name).collect();
    assert_eq!(names.join(","), lines.next().unwrap());
    for row in std::iter::once(first).chain(rows) {
        let cell = |field: &Field| match field {
            Field::Long(number) => number.to_string(),
            Field::Str(text) => text.clone(),
            Field::Null => String::new(),
            other => panic!("{other}"),
        };
        let cells: Vec<_> = row
            .get_column_iter()
            .map(|(_, field)| cell(field))
            .collect();
        assert_eq!(cells.join(","), lines.next().unwrap());
    }
    assert_eq!(lines.next(), None);
}
