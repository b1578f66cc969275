// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of packets that others wrote, damaged ones too.

use std::borrow::Cow;
use std::time::Duration;

use midwire_trace::export::pcapng::{About, Frame, Writer};
use midwire_trace::packet_file::{FilePacket, PacketFile};
use midwire_trace::{Error, Nanos};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Vec<FilePacket>, Error> {
    let mut file = PacketFile::new(bytes, "test")?;
    let mut packets = Vec::new();
    let mut packet = FilePacket::default();
    while file.read(&mut packet)? {
        packets.push(packet.clone());
    }
    Ok(packets)
}

/// Two packets, the second one cut.
fn pcap(endianness: Endianness, ts_resolution: TsResolution) -> Vec<u8> {
    let header = PcapHeader {
        endianness,
        ts_resolution,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (length, data) in [(5, &b"hello"[..]), (100, b"cut")] {
        let time = Duration::new(1_700_000_000, 123_456_000);
        writer
            .write_packet(&PcapPacket::new(time, length, data))
            .unwrap();
    }
    writer.into_writer()
}

#[test]
fn pcap_of_all_kinds() {
    for endianness in [Endianness::Little, Endianness::Big] {
        for resolution in [TsResolution::MicroSecond, TsResolution::NanoSecond] {
            let packets = read(&pcap(endianness, resolution)).unwrap();
            assert_eq!(packets.len(), 2);
            assert_eq!(packets[0].time, Nanos(1_700_000_000_123_456_000));
            assert_eq!(
                (packets[0].length, &packets[0].data[..]),
                (5, &b"hello"[..])
            );
            assert_eq!(
                (packets[1].length, &packets[1].data[..]),
                (100, &b"cut"[..])
            );
        }
    }
}

/// One packet an interface, of the resolutions given; the ticks are 3_000_000 each.
fn pcapng(endianness: Endianness, resolutions: &[u8]) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
    for resolution in resolutions {
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed("eth")),
            InterfaceDescriptionOption::IfTsResol(*resolution),
        ];
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options,
        };
        writer.write_pcapng_block(block).unwrap();
    }
    for interface_id in 0..resolutions.len() as u32 {
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(3_000_000),
            original_len: 9,
            data: Cow::Borrowed(b"hello"),
            options: vec![],
        };
        writer.write_pcapng_block(block).unwrap();
    }
    writer.into_inner()
}

#[test]
fn pcapng_of_all_kinds() {
    for endianness in [Endianness::Little, Endianness::Big] {
        let bytes = pcapng(endianness, &[6, 9, 0x80 | 20, 12, 0, 0xff, 0x7f]);
        let packets = read(&bytes).unwrap();
        let times: Vec<_> = packets.iter().map(|packet| packet.time.0).collect();
        let binary = 3_000_000 * 1_000_000_000 / (1 << 20);
        assert_eq!(
            times,
            [
                3_000_000_000,
                3_000_000,
                binary,
                3_000,
                3_000_000_000_000_000,
                0,
                0
            ]
        );
        assert!(
            packets
                .iter()
                .enumerate()
                .all(|(i, packet)| packet.interface == i)
        );
        assert_eq!(
            (packets[0].length, &packets[0].data[..]),
            (9, &b"hello"[..])
        );
        let mut file = PacketFile::new(&bytes[..], "test").unwrap();
        file.read(&mut FilePacket::default()).unwrap();
        assert_eq!(file.interfaces()[0].name.as_deref(), Some("eth"));
    }
}

#[test]
fn interfaces_begin_anew_in_each_section() {
    let bytes = [
        pcapng(Endianness::Little, &[9]),
        pcapng(Endianness::Big, &[6]),
    ]
    .concat();
    let packets = read(&bytes).unwrap();
    assert_eq!(
        (packets[0].time, packets[0].interface),
        (Nanos(3_000_000), 0)
    );
    assert_eq!(
        (packets[1].time, packets[1].interface),
        (Nanos(3_000_000_000), 1)
    );
}

#[test]
fn what_is_written_reads_back() {
    let mut writer = Writer::new(Vec::new(), &About::default()).unwrap();
    let interface = writer.interface("out", "", None, 0).unwrap();
    let frame = Frame {
        interface,
        time: Nanos(u64::MAX - 5),
        data: b"abc",
        length: 60,
        flags: 2,
        id: None,
        lost: 0,
        verdict: None,
        comments: &["a comment".into()],
    };
    writer.packet(&frame).unwrap();
    let packets = read(&writer.finish().unwrap()).unwrap();
    let expected = FilePacket {
        time: Nanos(u64::MAX - 5),
        interface: 0,
        length: 60,
        data: b"abc".into(),
    };
    assert_eq!(packets, [expected]);
}

#[test]
fn other_files_are_refused() {
    assert!(
        read(b"")
            .unwrap_err()
            .to_string()
            .contains("neither pcap nor pcapng")
    );
    assert!(
        read(b"#!/bin/sh\n")
            .unwrap_err()
            .to_string()
            .contains("neither pcap nor pcapng")
    );
    let bytes = pcap(Endianness::Little, TsResolution::NanoSecond);
    assert!(matches!(
        read(&bytes[..bytes.len() - 1]),
        Err(Error::File { .. })
    ));
}

proptest! {
    #[test]
    fn damage_is_an_error_and_no_panic(
        ng: bool,
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..8),
        cut: prop::sample::Index,
    ) {
        let mut bytes = match ng {
            true => pcapng(Endianness::Little, &[6, 9]),
            false => pcap(Endianness::Big, TsResolution::MicroSecond),
        };
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = read(&bytes);
    }

    #[test]
    fn noise_behind_a_header_is_no_panic(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&noise);
        for header in [pcapng(Endianness::Little, &[9]), pcap(Endianness::Big, TsResolution::NanoSecond)] {
            let _ = read(&[&header[..], &noise].concat());
        }
    }
}
