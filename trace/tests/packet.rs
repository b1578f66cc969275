// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packet parser and the frame builders, against each other and against published frames.

use midwire_trace::build::{self, Path, TcpSegment};
use midwire_trace::packet::{
    Aeth, AtomicEth, Bth, Fragment, Packet, Reth, TcpOption, Transport, icrc, internet_checksum,
    opcode, tcp_flags, transport_checksum,
};
use midwire_trace::{Kind, Proto};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// The ICRC by its definition: 64 bits of ones, then the packet with its variant fields as ones,
/// a bit at a time.
fn icrc_by_bits(ip: &[u8], l4: usize) -> u32 {
    let mut masked = [&[0xff; 8], ip].concat();
    let variant: &[usize] = match ip[0] >> 4 {
        4 => &[1, 8, 10, 11],
        _ => &[1, 2, 3, 7],
    };
    for at in variant.iter().copied().chain([l4 + 6, l4 + 7, l4 + 12]) {
        masked[8 + at] = 0xff;
    }
    if ip[0] >> 4 == 6 {
        masked[8] |= 0x0f;
    }
    let mut crc = !0u32;
    for byte in masked {
        for bit in 0..8 {
            let out = (crc ^ u32::from(byte >> bit)) & 1;
            crc = crc >> 1 ^ (0xedb8_8320 * out);
        }
    }
    !crc
}

fn bth(opcode: u8, psn: u32) -> Bth {
    Bth {
        opcode,
        byte1: 0x40,
        pkey: 0xffff,
        dest_qp: 0x12_3456,
        psn,
        ..Bth::default()
    }
}

#[test]
fn tcp_with_all_options() {
    let mut path = Path::ipv4(40000, 5001);
    path.vlan = vec![100, 200];
    path.ip_options = vec![1; 8];
    let mut options = bytes("0204 05b4 0303 07 0402 080a 0000000b 0000000c 01 01 01");
    options.extend(bytes("05 12 00000010 00000020 00000030 00000040"));
    assert!(options.len() <= 40);
    let segment = TcpSegment {
        seq: 0xffff_fff0,
        ack: 77,
        flags: tcp_flags::SYN | tcp_flags::ACK,
        window: 501,
        options,
    };
    let frame = build::tcp(&path, &segment, b"payload");
    let packet = Packet::parse(&frame);
    assert_eq!(
        (packet.malformed, packet.cut, packet.proto()),
        (None, false, Proto::Tcp)
    );
    assert_eq!(packet.ethernet.vlan, [Some(100), Some(200)]);
    assert_eq!((packet.l3_offset, packet.l4_offset), (22, 50));
    assert_eq!((packet.payload, packet.payload_len), (&b"payload"[..], 7));
    let tcp = packet.tcp().unwrap();
    assert_eq!((tcp.src_port, tcp.dst_port, tcp.window), (40000, 5001, 501));
    assert_eq!((tcp.seq, tcp.ack), (0xffff_fff0, 77));
    let mut found = tcp.options();
    assert_eq!(found.next(), Some(TcpOption::Mss(1460)));
    assert_eq!(found.next(), Some(TcpOption::WindowScale(7)));
    assert_eq!(found.next(), Some(TcpOption::SackPermitted));
    assert_eq!(
        found.next(),
        Some(TcpOption::Timestamps {
            value: 11,
            echo: 12
        })
    );
    let Some(TcpOption::Sack(blocks)) = found.next() else {
        panic!("no SACK")
    };
    assert_eq!(blocks.collect::<Vec<_>>(), [(16, 32), (48, 64)]);
    assert_eq!(found.next(), None);
    assert_eq!(internet_checksum(&frame[22..50]), 0);
    assert_eq!(transport_checksum(&packet.net.unwrap(), &frame[50..]), 0);
}

#[test]
fn udp_and_ipv6() {
    let frame = build::udp(&Path::ipv6(1, 2), b"abc");
    let packet = Packet::parse(&frame);
    assert_eq!((packet.proto(), packet.payload), (Proto::Udp, &b"abc"[..]));
    let net = packet.net.unwrap();
    assert_eq!((net.src.to_string(), net.ecn()), ("fd00::1".into(), 2));
    assert_eq!(transport_checksum(&net, &frame[packet.l4_offset..]), 0);
    // A pad to the shortest Ethernet frame isn't payload.
    let padded = [&frame[..], &[0; 20]].concat();
    assert_eq!(Packet::parse(&padded).payload, b"abc");
}

#[test]
fn roce_headers_by_opcode() {
    let path = Path::ipv4(50000, 0);
    let target = Reth {
        va: 0x1122_3344_5566_7788,
        rkey: 9,
        dma_len: 4096,
    };
    let frame = build::roce(
        &path,
        &bth(opcode::WRITE_ONLY, 0xff_ffff),
        &build::reth(target),
        b"x",
    );
    let packet = Packet::parse(&frame);
    let roce = packet.roce().unwrap();
    assert_eq!(
        (roce.reth, roce.bth.psn, roce.bth.dest_qp),
        (Some(target), 0xff_ffff, 0x12_3456)
    );
    assert_eq!((roce.bth.pad(), roce.bth.mig_req()), (3, true));
    assert_eq!((packet.payload_len, roce.kind()), (4, Kind::Data));
    assert_eq!(packet.proto(), Proto::Roce);

    let swap = AtomicEth {
        va: 0x1122_3344_5566_7788,
        rkey: 9,
        swap_add: 0x0102_0304_0506_0708,
        compare: 7,
    };
    let frame = build::roce(
        &path,
        &bth(opcode::COMPARE_SWAP, 1),
        &build::atomic(swap),
        b"",
    );
    let packet = Packet::parse(&frame);
    assert_eq!(packet.roce().unwrap().atomic, Some(swap));
    assert_eq!(packet.payload_len, 0);

    let nak = Aeth {
        syndrome: 0x60,
        msn: 5,
    };
    let frame = build::roce(&path, &bth(opcode::ACK, 3), &build::aeth(nak), b"");
    let packet = Packet::parse(&frame);
    assert_eq!(
        (packet.roce().unwrap().aeth, packet.payload_len),
        (Some(nak), 0)
    );
    assert_eq!(packet.roce().unwrap().kind(), Kind::Nak);

    let frame = build::roce(
        &path,
        &Bth {
            byte4: 0x40,
            ..bth(opcode::CNP, 0)
        },
        &[0; 16],
        b"",
    );
    let packet = Packet::parse(&frame);
    assert_eq!(packet.roce().unwrap().kind(), Kind::Cnp);
    assert!(packet.roce().unwrap().bth.becn());
    // As in the specification: IP 60 bytes, UDP 40.
    assert_eq!(frame.len(), 14 + 60);
    let Transport::Roce(udp, _) = packet.transport else {
        unreachable!()
    };
    assert_eq!(udp.length, 40);
}

#[test]
fn kinds_of_opcodes() {
    use midwire_trace::packet::roce_kind;
    assert_eq!(roce_kind(opcode::READ_REQUEST, 0), Kind::ReadRequest);
    assert_eq!(roce_kind(opcode::READ_RESPONSE_ONLY, 0x1f), Kind::Data);
    assert_eq!(roce_kind(opcode::ACK, 0x1f), Kind::Ack);
    assert_eq!(roce_kind(opcode::ACK, 0x2e), Kind::Nak);
    assert_eq!(roce_kind(opcode::ACK, 0x80), Kind::Nak);
    assert_eq!(roce_kind(0x24, 0), Kind::Data);
    assert_eq!(roce_kind(0x64, 0), Kind::Data);
    assert_eq!(roce_kind(0x82, 0), Kind::Other);
    assert_eq!(roce_kind(0x1f, 0), Kind::Other);
}

#[test]
fn icrc_ignores_what_may_change_on_the_way_and_nothing_else() {
    for path in [Path::ipv4(50000, 0), Path::ipv6(50000, 0)] {
        let frame = build::roce(&path, &bth(opcode::SEND_ONLY, 1), &[], b"some payload");
        let packet = Packet::parse(&frame);
        let (l3, l4) = (packet.l3_offset, packet.l4_offset);
        let whole = &frame[l3..frame.len() - 4];
        let right = icrc(whole, l4 - l3).unwrap();
        assert_eq!(right, icrc_by_bits(whole, l4 - l3));
        assert_eq!(packet.roce().unwrap().icrc, Some(right));
        assert_eq!(packet.expected_icrc(&frame), Some(right));
        for at in 0..whole.len() {
            let mut other = whole.to_vec();
            other[at] ^= 1;
            let l4 = l4 - l3;
            let may_change = match whole[0] >> 4 {
                4 => [1, 8, 10, 11].contains(&at),
                _ => [0, 1, 2, 3, 7].contains(&at),
            } || [l4 + 6, l4 + 7, l4 + 12].contains(&at);
            // The first byte of IPv6 holds the version in its other half; bit 0 is masked.
            assert_eq!(icrc(&other, l4) == Some(right), may_change, "byte {at}");
        }
    }
}

/// Frames published with scapy's RoCE layer (test/contrib/roce.uts): one captured on a
/// ConnectX-4 Lx, one described by its fields.
#[test]
fn icrc_of_published_frames() {
    let cnp = bytes(
        "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c40004011 9161 0a001101 0a001201
         0000 12b7 0028 0000 8100ffff 40000118 00000000 00000000000000000000000000000000 82fd002a",
    );
    let packet = Packet::parse(&cnp);
    assert_eq!(
        packet.roce().unwrap().icrc,
        Some(u32::from_le_bytes([0x82, 0xfd, 0x00, 0x2a]))
    );
    assert_eq!(packet.expected_icrc(&cnp), packet.roce().unwrap().icrc);
    assert_eq!(packet.roce().unwrap().kind(), Kind::Cnp);

    let uc = bytes(
        "248a07a8fa22 248a07a8fa22 0800 45010040 04784000 4011b4d5 c0a80007 c0a80007
         c000 12b7 002c aca2 2460ffff 000000d3 00cf1710
         4630818be28935d90e9a95505401be885e500000 78f353f3",
    );
    let packet = Packet::parse(&uc);
    assert_eq!(internet_checksum(&uc[14..34]), 0);
    assert_eq!(packet.roce().unwrap().bth.psn, 13_571_856);
    assert_eq!(packet.roce().unwrap().kind(), Kind::Data);
    assert_eq!(packet.expected_icrc(&uc), packet.roce().unwrap().icrc);
}

#[test]
fn lies_and_cuts_are_told_apart() {
    let path = Path::ipv4(1, 2);
    let segment = TcpSegment {
        flags: tcp_flags::ACK,
        ..TcpSegment::default()
    };
    let frame = build::tcp(&path, &segment, &[7; 100]);
    let lie = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        let packet = Packet::parse(&frame);
        assert_eq!(packet.proto(), Proto::Other);
        packet.malformed.unwrap()
    };
    assert_eq!(lie(14, 0x55), "IPv4 version is not 4");
    assert_eq!(lie(14, 0x44), "IPv4 header length below 5 words");
    assert_eq!(lie(16, 0xff), "IPv4 total length beyond the frame");
    assert_eq!(lie(17, 10), "IPv4 total length below its header's");
    assert_eq!(lie(46, 0x40), "TCP data offset below 5 words");
    assert_eq!(lie(17, 30), "TCP header cut");
    let mut short = frame.clone();
    (short[17], short[46]) = (42, 0xf0);
    assert_eq!(
        Packet::parse(&short).malformed,
        Some("TCP data offset beyond the packet")
    );
    assert_eq!(
        Packet::parse(&frame[..13]).malformed,
        Some("frame shorter than its Ethernet header")
    );

    for len in 0..frame.len() {
        let packet = Packet::parse_snapshot(&frame[..len], frame.len());
        assert_eq!((packet.malformed, packet.cut), (None, true), "{len}");
        if len >= 54 {
            assert_eq!((packet.payload_len, packet.payload.len()), (100, len - 54));
        }
    }
    let mut udp = build::udp(&path, b"abc");
    udp[39] = 7;
    assert_eq!(Packet::parse(&udp).malformed, Some("UDP length below 8"));
    udp[39] = 12;
    assert_eq!(
        Packet::parse(&udp).malformed,
        Some("UDP length beyond the packet")
    );
}

#[test]
fn only_the_first_part_of_a_packet_has_a_transport() {
    let mut frame = build::udp(&Path::ipv4(1, 4791), &[9; 40]);
    // More fragments; the UDP length is that of the whole.
    (frame[20], frame[38]) = (0x20, 0x04);
    let packet = Packet::parse(&frame);
    assert_eq!(packet.net.unwrap().fragment, Fragment::First);
    assert_eq!((packet.proto(), packet.payload_len), (Proto::Udp, 40));
    frame[21] = 1;
    let packet = Packet::parse(&frame);
    assert_eq!(packet.net.unwrap().fragment, Fragment::Later);
    assert_eq!(
        (packet.transport.clone(), packet.malformed),
        (Transport::None, None)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        more in 0usize..100,
    ) {
        let packet = Packet::parse_snapshot(&noise, noise.len() + more);
        prop_assert!(packet.payload.len() <= packet.payload_len || packet.payload_len == 0);
        packet.expected_icrc(&noise);
        internet_checksum(&noise);
        icrc(&noise, more);
    }

    #[test]
    fn damaged_frames_are_read_without_panic(
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..6),
        choice in 0..4,
        v6 in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let path = if v6 { Path::ipv6(3, 4) } else { Path::ipv4(3, 4) };
        let options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 12];
        let segment = TcpSegment { options, ..TcpSegment::default() };
        let mut frame = match choice {
            0 => build::tcp(&path, &segment, b"data"),
            1 => build::udp(&path, b"data"),
            2 => build::roce(&path, &bth(0x13, 9), &[1; 28], b"data"),
            _ => build::roce(&path, &bth(0x12, 9), &[1; 12], b""),
        };
        for (at, value) in flips {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let packet = Packet::parse(&frame);
        packet.expected_icrc(&frame);
        if let Some(tcp) = packet.tcp() {
            for option in tcp.options() {
                if let TcpOption::Sack(blocks) = option {
                    prop_assert!(blocks.count() <= 4);
                }
            }
        }
        Packet::parse_snapshot(&frame[..cut.index(frame.len())], frame.len());
    }

    #[test]
    fn tcp_reads_back(
        seq: u32, ack: u32, flags: u8, window: u16,
        payload in prop::collection::vec(any::<u8>(), 0..60),
        v6: bool,
    ) {
        let path = if v6 { Path::ipv6(3, 4) } else { Path::ipv4(3, 4) };
        let segment = TcpSegment { seq, ack, flags, window, options: vec![] };
        let frame = build::tcp(&path, &segment, &payload);
        let packet = Packet::parse(&frame);
        let tcp = packet.tcp().unwrap();
        prop_assert_eq!((tcp.seq, tcp.ack, tcp.flags, tcp.window), (seq, ack, flags, window));
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert_eq!(transport_checksum(&packet.net.unwrap(), &frame[packet.l4_offset..]), 0);
    }
}

/// InfiniBand specification, volume 1, table 45 and 9.7.6.1.3.
#[test]
fn timers_are_those_of_the_specification() {
    use midwire_trace::packet::{ack_timeout_ns, syndrome};
    for (code, microseconds) in [(0, 655_360), (1, 10), (12, 640), (14, 1280), (31, 491_520)] {
        assert_eq!(
            syndrome::not_ready_us(syndrome::NOT_READY | code),
            microseconds
        );
    }
    for (setting, time) in [(0, None), (1, Some(8_192)), (14, Some(67_108_864))] {
        assert_eq!(ack_timeout_ns(setting), time);
    }
}
