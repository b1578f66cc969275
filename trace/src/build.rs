// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes frames with right lengths and checksums: for tests and for models of endpoints.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::packet::{
    Aeth, AtomicEth, Bth, Fragment, Net, ROCE_PORT, Reth, ethertype, icrc, internet_checksum,
    transport_checksum,
};

/// What lies below the transport, from one end to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Link-layer address of the sender.
    pub src_mac: [u8; 6],
    /// Link-layer address of the receiver.
    pub dst_mac: [u8; 6],
    /// VLAN tags, the outer one first; with two, the outer one is a service tag.
    pub vlan: Vec<u16>,
    /// Address and port of the sender.
    pub src: SocketAddr,
    /// Address and port of the receiver, of the same family. RoCE takes its own port.
    pub dst: SocketAddr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// IPv4 options, padded to whole words.
    pub ip_options: Vec<u8>,
}

impl Path {
    /// Between two ends, with plain addresses and ECN-capable.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        Self {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            vlan: Vec::new(),
            src,
            dst,
            traffic_class: 2,
            ttl: 64,
            ip_options: Vec::new(),
        }
    }

    /// The way back.
    pub fn reversed(&self) -> Self {
        Self {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src: self.dst,
            dst: self.src,
            ..self.clone()
        }
    }

    /// Between 10.0.0.1 and 10.0.0.2.
    pub fn ipv4(src_port: u16, dst_port: u16) -> Self {
        let host = |n, port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, n), port));
        Self::new(host(1, src_port), host(2, dst_port))
    }

    /// Between fd00::1 and fd00::2.
    pub fn ipv6(src_port: u16, dst_port: u16) -> Self {
        let host = |n, port| SocketAddr::from(([0xfd00u16, 0, 0, 0, 0, 0, 0, n], port));
        Self::new(host(1, src_port), host(2, dst_port))
    }

    fn net(&self, protocol: u8) -> Net {
        Net {
            src: self.src.ip(),
            dst: self.dst.ip(),
            traffic_class: self.traffic_class,
            ttl: self.ttl,
            protocol,
            fragment: Fragment::Whole,
        }
    }

    /// Link layer and IP headers for `len` bytes of transport.
    fn head(&self, protocol: u8, len: usize) -> Vec<u8> {
        let mut frame = [self.dst_mac, self.src_mac].concat();
        for (i, tag) in self.vlan.iter().enumerate() {
            let outer = i + 1 < self.vlan.len();
            let kind = if outer {
                ethertype::SERVICE_VLAN
            } else {
                ethertype::VLAN
            };
            frame.extend(kind.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend(ethertype::IPV4.to_be_bytes());
                let start = frame.len();
                let header_len = 20 + self.ip_options.len();
                frame.extend([0x40 | (header_len / 4) as u8, self.traffic_class]);
                frame.extend(((header_len + len) as u16).to_be_bytes());
                // Identification 0, don't fragment.
                frame.extend([0, 0, 0x40, 0, self.ttl, protocol, 0, 0]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
                frame.extend(&self.ip_options);
                let checksum = internet_checksum(&frame[start..]);
                frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (src, dst) => {
                let octets = |addr| match addr {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                frame.extend(ethertype::IPV6.to_be_bytes());
                frame.extend([
                    0x60 | self.traffic_class >> 4,
                    self.traffic_class << 4,
                    0,
                    0,
                ]);
                frame.extend((len as u16).to_be_bytes());
                frame.extend([protocol, self.ttl]);
                frame.extend(octets(src));
                frame.extend(octets(dst));
            }
        }
        frame
    }
}

/// Fields of a TCP segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpSegment {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags byte.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Options; padded with zeros to whole words.
    pub options: Vec<u8>,
}

/// A TCP frame.
pub fn tcp(path: &Path, segment: &TcpSegment, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + segment.options.len().next_multiple_of(4);
    let mut frame = path.head(6, header_len + payload.len());
    let start = frame.len();
    frame.extend(path.src.port().to_be_bytes());
    frame.extend(path.dst.port().to_be_bytes());
    frame.extend(segment.seq.to_be_bytes());
    frame.extend(segment.ack.to_be_bytes());
    frame.extend([((header_len / 4) << 4) as u8, segment.flags]);
    frame.extend(segment.window.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(&segment.options);
    frame.resize(start + header_len, 0);
    frame.extend(payload);
    let checksum = transport_checksum(&path.net(6), &frame[start..]);
    frame[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// A UDP frame.
pub fn udp(path: &Path, payload: &[u8]) -> Vec<u8> {
    let mut frame = udp_head(path, path.dst.port(), payload.len());
    let start = frame.len() - 8;
    frame.extend(payload);
    // A checksum of 0 would mean none (RFC 768).
    let checksum = match transport_checksum(&path.net(17), &frame[start..]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn udp_head(path: &Path, dst_port: u16, len: usize) -> Vec<u8> {
    let mut frame = path.head(17, 8 + len);
    frame.extend(path.src.port().to_be_bytes());
    frame.extend(dst_port.to_be_bytes());
    frame.extend(((8 + len) as u16).to_be_bytes());
    frame.extend([0; 2]);
    frame
}

/// A RoCEv2 frame: BTH, the bytes of the headers that extend it, payload, pad and ICRC. The pad
/// count is set as the payload needs it; the UDP checksum is none.
pub fn roce(path: &Path, bth: &Bth, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().next_multiple_of(4) - payload.len();
    let mut frame = udp_head(
        path,
        ROCE_PORT,
        12 + extensions.len() + payload.len() + pad + 4,
    );
    let l4 = frame.len() - 8;
    let [_, psn @ ..] = bth.psn.to_be_bytes();
    let [_, qp @ ..] = bth.dest_qp.to_be_bytes();
    frame.extend([bth.opcode, bth.byte1 & !0x30 | (pad as u8) << 4]);
    frame.extend(bth.pkey.to_be_bytes());
    frame.push(bth.byte4);
    frame.extend(qp);
    frame.push(u8::from(bth.ack_req) << 7);
    frame.extend(psn);
    frame.extend(extensions);
    frame.extend(payload);
    frame.extend(&[0; 3][..pad]);
    let l3 = 14 + 4 * path.vlan.len();
    if let Some(crc) = icrc(&frame[l3..], l4 - l3) {
        frame.extend(crc.to_le_bytes());
    }
    frame
}

/// Bytes of an AETH.
pub fn aeth(aeth: Aeth) -> Vec<u8> {
    (u32::from(aeth.syndrome) << 24 | aeth.msn & 0xff_ffff)
        .to_be_bytes()
        .to_vec()
}

/// Bytes of a RETH.
pub fn reth(reth: Reth) -> Vec<u8> {
    let mut bytes = reth.va.to_be_bytes().to_vec();
    bytes.extend(reth.rkey.to_be_bytes());
    bytes.extend(reth.dma_len.to_be_bytes());
    bytes
}

/// Bytes of an AtomicETH.
pub fn atomic(atomic: AtomicEth) -> Vec<u8> {
    let mut bytes = atomic.va.to_be_bytes().to_vec();
    bytes.extend(atomic.rkey.to_be_bytes());
    bytes.extend(atomic.swap_add.to_be_bytes());
    bytes.extend(atomic.compare.to_be_bytes());
    bytes
}
