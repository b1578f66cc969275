// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every opcode of a reliable connection, the others that RoCE has, and what sets connections up,
//! as tshark reads them.

#[path = "common/mad.rs"]
mod mad;

use std::process::Command;

use midwire_analysis::roce::{Introduction, Timer};
use midwire_trace::build::{self, Path};
use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet::{AtomicEth, Bth, Packet, Reth, Roce};
use midwire_trace::{Kind, Nanos};

/// What an opcode has behind the BTH (InfiniBand specification, volume 1, table 38), and whether
/// it carries payload.
const OPCODES: [(u8, &[Header], bool); 26] = {
    use Header::{Aeth, Atomic, AtomicAck, Deth, Immediate, Key, Reserved, Reth};
    [
        (0x00, &[], true),
        (0x01, &[], true),
        (0x02, &[], true),
        (0x03, &[Immediate], true),
        (0x04, &[], true),
        (0x05, &[Immediate], true),
        (0x06, &[Reth], true),
        (0x07, &[], true),
        (0x08, &[], true),
        (0x09, &[Immediate], true),
        (0x0a, &[Reth], true),
        (0x0b, &[Reth, Immediate], true),
        (0x0c, &[Reth], false),
        (0x0d, &[Aeth], true),
        (0x0e, &[], true),
        (0x0f, &[Aeth], true),
        (0x10, &[Aeth], true),
        (0x11, &[Aeth], false),
        (0x12, &[Aeth, AtomicAck], false),
        (0x13, &[Atomic], false),
        (0x14, &[Atomic], false),
        (0x16, &[Key], true),
        (0x17, &[Key], true),
        (0x2a, &[Reth], true),
        (0x64, &[Deth], true),
        (0x81, &[Reserved], false),
    ]
};

#[derive(Clone, Copy)]
enum Header {
    Aeth,
    Atomic,
    AtomicAck,
    Deth,
    Immediate,
    Key,
    Reserved,
    Reth,
}

impl Header {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Aeth => vec![0x60, 0x12, 0x34, 0x56],
            Self::Atomic => build::atomic(AtomicEth {
                va: 0x1122_3344_5566_7788,
                rkey: 0x99aa_bbcc,
                swap_add: 0xdead_beef_0bad_cafe,
                compare: 0x0123_4567_89ab_cdef,
            }),
            Self::AtomicAck => vec![1, 2, 3, 4, 5, 6, 7, 8],
            Self::Deth => vec![0x80, 0x01, 0x00, 0x02, 0, 0x0a, 0x0b, 0x0c],
            Self::Immediate => vec![0xca, 0xfe, 0xf0, 0x0d],
            Self::Key => vec![0x0b, 0xad, 0xf0, 0x0d],
            Self::Reserved => vec![0; 16],
            Self::Reth => build::reth(Reth {
                va: 0x8877_6655_4433_2211,
                rkey: 0x1234_5678,
                dma_len: 0x0001_0000,
            }),
        }
    }
}

/// Columns of tshark and the same of what is read here; nothing for what there is not.
type Field = (&'static str, fn(&Roce) -> Option<u64>);

const ICRC: &str = "infiniband.invariant.crc";
const FIELDS: [Field; 20] = [
    ("infiniband.bth.opcode", |r| Some(r.bth.opcode.into())),
    ("infiniband.bth.se", |r| Some(r.bth.solicited().into())),
    ("infiniband.bth.m", |r| Some(r.bth.mig_req().into())),
    ("infiniband.bth.padcnt", |r| Some(r.bth.pad().into())),
    ("infiniband.bth.p_key", |r| Some(r.bth.pkey.into())),
    ("infiniband.bth.destqp", |r| Some(r.bth.dest_qp.into())),
    ("infiniband.bth.a", |r| Some(r.bth.ack_req.into())),
    ("infiniband.bth.psn", |r| Some(r.bth.psn.into())),
    ("infiniband.deth.q_key", |r| Some(r.deth?.qkey.into())),
    ("infiniband.deth.srcqp", |r| Some(r.deth?.src_qp.into())),
    ("infiniband.reth.va", |r| {
        r.reth.map(|x| x.va).or(r.atomic.map(|x| x.va))
    }),
    ("infiniband.reth.r_key", |r| {
        (r.reth.map(|x| x.rkey))
            .or(r.atomic.map(|x| x.rkey))
            .map(Into::into)
    }),
    ("infiniband.reth.dmalen", |r| Some(r.reth?.dma_len.into())),
    ("infiniband.atomiceth.swapdt", |r| Some(r.atomic?.swap_add)),
    ("infiniband.atomiceth.cmpdt", |r| Some(r.atomic?.compare)),
    ("infiniband.aeth.syndrome", |r| {
        Some(r.aeth?.syndrome.into())
    }),
    ("infiniband.aeth.msn", |r| Some(r.aeth?.msn.into())),
    ("infiniband.atomicacketh.origremdt", |r| r.atomic_ack),
    ("infiniband.immdt", |r| r.immediate.map(Into::into)),
    ("infiniband.ieth", |r| r.invalidate.map(Into::into)),
];

/// A value as tshark writes it; of some fields, the bytes.
fn number(name: &str, text: &str) -> Option<u64> {
    let bytes = matches!(name, "infiniband.immdt" | "infiniband.ieth");
    match text {
        "" => None,
        "True" => Some(1),
        "False" => Some(0),
        hex if bytes => u64::from_str_radix(hex, 16).ok(),
        hex if hex.starts_with("0x") => u64::from_str_radix(&hex[2..], 16).ok(),
        decimal => decimal.parse().ok(),
    }
}

/// A line with these fields for each frame; nothing when there is no tshark.
fn dissected<'a>(frames: &[Vec<u8>], fields: impl Iterator<Item = &'a str>) -> Option<String> {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed");
        return None;
    }
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("frames.pcapng");
    let file = std::fs::File::create(&path).expect("file");
    let mut writer = Writer::new(file, &About::default()).expect("header");
    let interface = writer.interface("x", "", None, 0).expect("interface");
    for (data, n) in frames.iter().zip(1..) {
        let frame = Frame::received(interface, Nanos(n), data);
        writer.packet(&frame).expect("packet");
    }
    writer.finish().expect("file written");
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=f", "-r"]);
    tshark.arg(&path);
    for name in fields {
        tshark.args(["-e", name]);
    }
    let output = tshark.output().expect("tshark runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn opcode_by_opcode() {
    let mut frames = Vec::new();
    for route in [Path::ipv4(50_000, 4791), Path::ipv6(50_001, 4791)] {
        for (n, (opcode, headers, payload)) in OPCODES.into_iter().enumerate() {
            let bth = Bth {
                opcode,
                byte1: [0x40, 0x80, 0xc0, 0][n % 4],
                pkey: 0xffff - n as u16,
                byte4: if opcode == 0x81 { 0x40 } else { 0 },
                dest_qp: 0x12_3400 + n as u32,
                ack_req: n % 3 == 0,
                psn: 0xff_ffff - n as u32,
            };
            let headers: Vec<u8> = headers.iter().flat_map(|h| h.bytes()).collect();
            // Lengths with each pad.
            let payload = &[0x5a; 16][..if payload { 13 + n % 4 } else { 0 }];
            frames.push(build::roce(&route, &bth, &headers, payload));
        }
    }
    let names = FIELDS.map(|(name, _)| name);
    let Some(text) = dissected(&frames, [ICRC].into_iter().chain(names)) else {
        return;
    };
    assert_eq!(text.lines().count(), frames.len());
    for (line, frame) in text.lines().zip(&frames) {
        let packet = Packet::parse(frame);
        let roce = packet.roce().expect("RoCE");
        let mut columns = line.split('\t');
        // tshark shows the bytes in the order of the wire.
        let icrc = columns.next().and_then(|text| number(ICRC, text));
        let icrc = icrc.map(|crc| (crc as u32).swap_bytes());
        // Of a congestion notification it does not show it.
        if roce.kind() != Kind::Cnp {
            assert_eq!(icrc, roce.icrc, "{line}");
        }
        assert_eq!(packet.expected_icrc(frame), roce.icrc);
        for ((name, read), theirs) in FIELDS.into_iter().zip(columns) {
            assert_eq!(
                number(name, theirs),
                read(roce),
                "{name}, opcode {:#x}: {line}",
                roce.bth.opcode
            );
        }
    }
}

#[test]
fn introductions() {
    let path = Path::ipv4(50_000, 4791);
    let frames = [
        mad::request(&path, 0x1234_5678, 0xabc_def, [17, 6]),
        mad::reply(&path.reversed(), 0x1234_5678, 0x65_4321),
    ];
    let read = |frame: &Vec<u8>| {
        let packet = Packet::parse(frame);
        let roce = packet.roce().expect("RoCE");
        Introduction::read(&packet, roce).expect("an introduction")
    };
    let asked = Introduction::Request {
        id: 0x1234_5678,
        qp: 0xabc_def,
        timer: Timer {
            timeout: Some(17),
            retry_count: Some(6),
        },
    };
    let taken = Introduction::Reply {
        id: 0x1234_5678,
        qp: 0x65_4321,
    };
    assert_eq!(frames.each_ref().map(read), [asked, taken]);
    let names = [
        "infiniband.cm.req",
        "infiniband.cm.req.localqpn",
        "infiniband.cm.req.prim_localacktout",
        "infiniband.cm.req.retrcount",
        "infiniband.cm.rep.remotecommid",
        "infiniband.cm.rep.localqpn",
    ];
    let Some(text) = dissected(&frames, names.into_iter()) else {
        return;
    };
    let theirs: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split('\t').map(|text| number("", text)).collect())
        .collect();
    let [id, qp] = [0x1234_5678, 0xabc_def].map(Some);
    assert_eq!(theirs[0], [id, qp, Some(17), Some(6), None, None]);
    assert_eq!(theirs[1], [None, None, None, None, id, Some(0x65_4321)]);
}
