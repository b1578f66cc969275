// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads frames: Ethernet, up to two VLAN tags, IPv4, IPv6, TCP, UDP, RoCEv2.
//!
//! Any bytes will do. A frame whose headers lie is [malformed](Packet::malformed); one that was
//! only captured in part is [cut](Packet::cut), and shows what is there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crc32fast::Hasher;

use crate::units::{Kind, Proto, Psn};

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// Bytes of the ICRC at the end of a RoCE packet.
pub const ICRC_BYTES: usize = 4;

/// EtherTypes (IEEE 802 numbers).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// Bits of the TCP flags byte (RFC 9293, 3.1).
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push function.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Extension headers of IPv6 that may stand before the transport: hop-by-hop, routing,
/// destination options.
const IPV6_EXTENSIONS: [u8; 3] = [0, 43, 60];
const IPV6_FRAGMENT: u8 = 44;

/// A frame, read.
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Link layer; zero when not even that is whole.
    pub ethernet: Ethernet,
    /// IP, if there is any.
    pub net: Option<Net>,
    /// What IP carries.
    pub transport: Transport<'a>,
    /// Where the IP header begins, in bytes from the start of the frame.
    pub l3_offset: usize,
    /// Where the transport header begins.
    pub l4_offset: usize,
    /// Where the payload begins: after the TCP options, the UDP header, or BTH and what extends it.
    pub payload_offset: usize,
    /// Bytes of payload, as the headers say: TCP or UDP payload; RoCE payload and pad.
    pub payload_len: usize,
    /// As much of the payload as was captured.
    pub payload: &'a [u8],
    /// What is wrong with the headers.
    pub malformed: Option<&'static str>,
    /// Less was captured than the headers announce.
    pub cut: bool,
}

/// Link-layer header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// Tag control information of up to two VLAN tags, the outer one first.
    pub vlan: [Option<u16>; 2],
    /// Of what follows the tags.
    pub ethertype: u16,
}

/// What is common to IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// TOS byte or traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol of what IP carries.
    pub protocol: u8,
    /// Whether it is a whole packet.
    pub fragment: Fragment,
}

/// Part of a packet that IP has cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// A whole packet.
    Whole,
    /// The first part: its transport header is read, RoCE apart.
    First,
    /// Any other part: its transport is none.
    Later,
}

impl Net {
    /// ECN field: 0 not capable, 1 and 2 capable, 3 congestion experienced (RFC 3168).
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// The network has marked it: congestion experienced.
    pub const fn is_marked(&self) -> bool {
        self.ecn() == 3
    }
}

/// What IP carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport<'a> {
    /// Nothing that is read here.
    None,
    /// TCP.
    Tcp(Tcp<'a>),
    /// UDP that is not RoCEv2.
    Udp(Udp),
    /// RoCEv2.
    Roce(Udp, Roce),
}

/// TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// CWR ECE URG ACK PSH RST SYN FIN, high to low.
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Checksum.
    pub checksum: u16,
    options: &'a [u8],
}

/// UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of header and payload.
    pub length: u16,
    /// Checksum; 0 none.
    pub checksum: u16,
}

/// RoCEv2: base transport header and what extends it (InfiniBand specification, volume 1, 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roce {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram: queue key and source queue pair.
    pub deth: Option<Deth>,
    /// RDMA: where to.
    pub reth: Option<Reth>,
    /// Atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Original value at the target of an atomic operation.
    pub atomic_ack: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Key to be invalidated.
    pub invalidate: Option<u32>,
    /// Invariant CRC, as found; `None` when it was not captured.
    pub icrc: Option<u32>,
}

/// Base transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// Transport in the high 3 bits, operation in the low 5.
    pub opcode: u8,
    /// SE, MigReq, pad count and header version.
    pub byte1: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN, BECN and 6 reserved bits.
    pub byte4: u8,
    /// Destination queue pair.
    pub dest_qp: u32,
    /// The requester asks for an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source queue pair.
    pub src_qp: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes to transfer.
    pub dma_len: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Acknowledgement extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Class in the high 3 bits, credits, timer or code in the low 5.
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Syndromes of an AETH (InfiniBand specification, volume 1, 9.7.5.2).
pub mod syndrome {
    /// The class of an answer.
    pub const CLASS: u8 = 0xe0;
    /// Class: acknowledgement.
    pub const ACK: u8 = 0x00;
    /// Acknowledgement that tells no credits.
    pub const NO_CREDITS: u8 = 0x1f;
    /// Class: receiver not ready. The timer is in the other bits.
    pub const NOT_READY: u8 = 0x20;
    /// Class: NAK.
    pub const NAK: u8 = 0x60;
    /// NAK: PSN sequence error.
    pub const SEQUENCE_ERROR: u8 = 0x60;
    /// NAK: invalid request.
    pub const INVALID_REQUEST: u8 = 0x61;
    /// NAK: remote access error.
    pub const REMOTE_ACCESS: u8 = 0x62;

    /// Microseconds that a receiver that is not ready wants to be left alone, by its syndrome
    /// (table 45).
    pub const fn not_ready_us(syndrome: u8) -> u64 {
        const TENS: [u64; 32] = [
            65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
        ];
        TENS[(syndrome & 0x1f) as usize] * 10
    }
}

/// Nanoseconds that the acknowledgement timer of a queue pair runs for, by its setting:
/// 4.096 µs · 2^setting, 5 bits; 0 stands for no timer (InfiniBand specification, volume 1,
/// 9.7.6.1.3).
pub const fn ack_timeout_ns(setting: u8) -> Option<u64> {
    match setting & 31 {
        0 => None,
        setting => Some(4096 << setting),
    }
}

/// The operations of a reliable connection; those of the other transports are alike.
pub mod opcode {
    /// Congestion notification.
    pub const CNP: u8 = 0x81;
    /// SEND, first packet.
    pub const SEND_FIRST: u8 = 0x00;
    /// SEND, in between.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// SEND, last packet.
    pub const SEND_LAST: u8 = 0x02;
    /// SEND, the only packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// RDMA WRITE, first packet.
    pub const WRITE_FIRST: u8 = 0x06;
    /// RDMA WRITE, in between.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// RDMA WRITE, last packet.
    pub const WRITE_LAST: u8 = 0x08;
    /// RDMA WRITE, the only packet.
    pub const WRITE_ONLY: u8 = 0x0a;
    /// RDMA WRITE, the only packet, with immediate data.
    pub const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
    /// RDMA READ request.
    pub const READ_REQUEST: u8 = 0x0c;
    /// RDMA READ response, first packet.
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    /// RDMA READ response, in between.
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    /// RDMA READ response, last packet.
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    /// RDMA READ response, the only packet.
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    /// Acknowledgement, negative ones too.
    pub const ACK: u8 = 0x11;
    /// Answer to an atomic operation.
    pub const ATOMIC_ACK: u8 = 0x12;
    /// Atomic compare and swap.
    pub const COMPARE_SWAP: u8 = 0x13;
    /// Atomic fetch and add.
    pub const FETCH_ADD: u8 = 0x14;

    /// More packets of its message follow; this one is as long as packets can be.
    pub const fn goes_on(opcode: u8) -> bool {
        matches!(
            opcode,
            SEND_FIRST
                | SEND_MIDDLE
                | WRITE_FIRST
                | WRITE_MIDDLE
                | READ_RESPONSE_FIRST
                | READ_RESPONSE_MIDDLE
        )
    }
}

impl Bth {
    /// Of `byte1`: migration state.
    pub const MIG_REQ: u8 = 0x40;
    /// Of `byte4`: backward congestion.
    pub const BECN: u8 = 0x40;

    /// Forward congestion: set by the network.
    pub const fn fecn(&self) -> bool {
        self.byte4 & 0x80 != 0
    }

    /// Backward congestion: set in a congestion notification.
    pub const fn becn(&self) -> bool {
        self.byte4 & Self::BECN != 0
    }

    /// Its packet sequence number.
    pub const fn sequence(&self) -> Psn {
        Psn::new(self.psn as u64)
    }

    /// Bytes of pad at the end of the payload.
    pub const fn pad(&self) -> u8 {
        self.byte1 >> 4 & 3
    }

    /// Migration state.
    pub const fn mig_req(&self) -> bool {
        self.byte1 & Self::MIG_REQ != 0
    }

    /// Solicited event.
    pub const fn solicited(&self) -> bool {
        self.byte1 & 0x80 != 0
    }
}

/// What a RoCE packet is to its connection, by its opcode and the syndrome of its AETH.
pub fn roce_kind(opcode: u8, syndrome: u8) -> Kind {
    if opcode == opcode::CNP {
        return Kind::Cnp;
    }
    // RC, UC, RD, UD, and XRC behind the congestion notification's number.
    if !matches!(opcode >> 5, 0..=3 | 5) {
        return Kind::Other;
    }
    match opcode & 0x1f {
        0x00..=0x0b | 0x0d..=0x10 | 0x13 | 0x14 | 0x16 | 0x17 => Kind::Data,
        opcode::READ_REQUEST => Kind::ReadRequest,
        opcode::ACK if syndrome & syndrome::CLASS != syndrome::ACK => Kind::Nak,
        opcode::ACK | opcode::ATOMIC_ACK => Kind::Ack,
        _ => Kind::Other,
    }
}

/// What a TCP segment is to its connection: the first of RST, SYN, data, FIN, ACK.
pub fn tcp_kind(flags: u8, payload_len: usize) -> Kind {
    let set = |bit| flags & bit != 0;
    match () {
        () if set(tcp_flags::RST) => Kind::Rst,
        () if set(tcp_flags::SYN) => Kind::Syn,
        () if payload_len != 0 => Kind::Data,
        () if set(tcp_flags::FIN) => Kind::Fin,
        () if set(tcp_flags::ACK) => Kind::Ack,
        () => Kind::Other,
    }
}

/// Why reading of a frame ended before its payload.
enum Short {
    /// The frame itself is wrong.
    Malformed(&'static str),
    /// The rest was not captured.
    Cut,
}

/// The bytes of a frame that were captured, and where they end in truth.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    data: &'a [u8],
    /// End of the frame, or of what the headers read so far leave of it.
    end: usize,
}

impl<'a> Bytes<'a> {
    /// `N` bytes at `at`; `what` names them when the frame ends before.
    fn take<const N: usize>(&self, at: usize, what: &'static str) -> Result<&'a [u8; N], Short> {
        if at.checked_add(N).is_none_or(|end| end > self.end) {
            return Err(Short::Malformed(what));
        }
        self.data
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(Short::Cut)
    }

    /// As much as was captured of the bytes from `from` to `to`.
    fn captured(&self, from: usize, to: usize) -> &'a [u8] {
        let end = to.min(self.data.len());
        self.data.get(from.min(end)..end).unwrap_or_default()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u24_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

impl<'a> Packet<'a> {
    /// Reads a whole frame, without FCS.
    pub fn parse(frame: &'a [u8]) -> Self {
        Self::parse_snapshot(frame, frame.len())
    }

    /// Reads the first bytes of a frame that was `length` bytes long.
    pub fn parse_snapshot(snapshot: &'a [u8], length: usize) -> Self {
        let mut packet = Self {
            ethernet: Ethernet::default(),
            net: None,
            transport: Transport::None,
            l3_offset: 0,
            l4_offset: 0,
            payload_offset: 0,
            payload_len: 0,
            payload: &[],
            malformed: None,
            cut: false,
        };
        let bytes = Bytes {
            data: snapshot,
            end: length.max(snapshot.len()),
        };
        match packet.read(bytes) {
            Ok(()) => {}
            Err(Short::Malformed(what)) => packet.malformed = Some(what),
            Err(Short::Cut) => packet.cut = true,
        }
        packet
    }

    /// The protocol as a record names it.
    pub fn proto(&self) -> Proto {
        match self.transport {
            _ if self.malformed.is_some() => Proto::Other,
            Transport::None => Proto::Other,
            Transport::Tcp(_) => Proto::Tcp,
            Transport::Udp(_) => Proto::Udp,
            Transport::Roce(..) => Proto::Roce,
        }
    }

    /// The TCP header, if that is what it is.
    pub fn tcp(&self) -> Option<&Tcp<'a>> {
        match &self.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// The RoCE headers, if that is what it is.
    pub fn roce(&self) -> Option<&Roce> {
        match &self.transport {
            Transport::Roce(_, roce) => Some(roce),
            _ => None,
        }
    }

    fn read(&mut self, mut bytes: Bytes<'a>) -> Result<(), Short> {
        let mac: &[u8; 14] = bytes.take(0, "frame shorter than its Ethernet header")?;
        let mac_addr = |at: usize| [0, 1, 2, 3, 4, 5].map(|i| mac[at + i]);
        let eth = &mut self.ethernet;
        (eth.dst, eth.src, eth.ethertype) = (mac_addr(0), mac_addr(6), u16_at(mac, 12));
        self.l3_offset = 14;
        for tag in &mut eth.vlan {
            if !matches!(eth.ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN) {
                break;
            }
            let next: &[u8; 4] = bytes.take(self.l3_offset, "VLAN tag cut")?;
            *tag = Some(u16_at(next, 0));
            eth.ethertype = u16_at(next, 2);
            self.l3_offset += 4;
        }
        let net = match eth.ethertype {
            ethertype::IPV4 => self.read_ipv4(&mut bytes)?,
            ethertype::IPV6 => self.read_ipv6(&mut bytes)?,
            _ => {
                self.payload_offset = self.l3_offset;
                return Ok(());
            }
        };
        self.net = Some(net);
        self.payload_offset = self.l4_offset;
        match net.protocol {
            _ if net.fragment == Fragment::Later => Ok(()),
            TCP => self.read_tcp(bytes),
            UDP => self.read_udp(bytes, net.fragment == Fragment::First),
            _ => Ok(()),
        }
    }

    fn read_ipv4(&mut self, bytes: &mut Bytes<'a>) -> Result<Net, Short> {
        let ip: &[u8; 20] = bytes.take(self.l3_offset, "IPv4 header cut")?;
        let header_len = usize::from(ip[0] & 0xf) * 4;
        let total = usize::from(u16_at(ip, 2));
        if ip[0] >> 4 != 4 {
            return Err(Short::Malformed("IPv4 version is not 4"));
        }
        if header_len < 20 {
            return Err(Short::Malformed("IPv4 header length below 5 words"));
        }
        if total < header_len {
            return Err(Short::Malformed("IPv4 total length below its header's"));
        }
        if self.l3_offset + total > bytes.end {
            return Err(Short::Malformed("IPv4 total length beyond the frame"));
        }
        bytes.end = self.l3_offset + total;
        self.l4_offset = self.l3_offset + header_len;
        Ok(Net {
            src: Ipv4Addr::from(u32_at(ip, 12)).into(),
            dst: Ipv4Addr::from(u32_at(ip, 16)).into(),
            traffic_class: ip[1],
            ttl: ip[8],
            protocol: ip[9],
            // An offset, or more fragments.
            fragment: match u16_at(ip, 6) & 0x3fff {
                0 => Fragment::Whole,
                0x2000 => Fragment::First,
                _ => Fragment::Later,
            },
        })
    }

    fn read_ipv6(&mut self, bytes: &mut Bytes<'a>) -> Result<Net, Short> {
        let ip: &[u8; 40] = bytes.take(self.l3_offset, "IPv6 header cut")?;
        if ip[0] >> 4 != 6 {
            return Err(Short::Malformed("IPv6 version is not 6"));
        }
        let end = self.l3_offset + 40 + usize::from(u16_at(ip, 4));
        if end > bytes.end {
            return Err(Short::Malformed("IPv6 payload length beyond the frame"));
        }
        bytes.end = end;
        let address = |at: usize| {
            Ipv6Addr::from(u128::from(u64_at(ip, at)) << 64 | u128::from(u64_at(ip, at + 8))).into()
        };
        let mut net = Net {
            src: address(8),
            dst: address(24),
            traffic_class: ip[0] << 4 | ip[1] >> 4,
            ttl: ip[7],
            protocol: ip[6],
            fragment: Fragment::Whole,
        };
        self.l4_offset = self.l3_offset + 40;
        while IPV6_EXTENSIONS.contains(&net.protocol) {
            let head: &[u8; 2] = bytes.take(self.l4_offset, "IPv6 extension header cut")?;
            net.protocol = head[0];
            self.l4_offset += (usize::from(head[1]) + 1) * 8;
            if self.l4_offset > bytes.end {
                return Err(Short::Malformed("IPv6 extension header beyond the packet"));
            }
        }
        if net.protocol == IPV6_FRAGMENT {
            net.fragment = Fragment::Later;
        }
        Ok(net)
    }

    fn read_tcp(&mut self, bytes: Bytes<'a>) -> Result<(), Short> {
        let tcp: &[u8; 20] = bytes.take(self.l4_offset, "TCP header cut")?;
        let header_len = usize::from(tcp[12] >> 4) * 4;
        if header_len < 20 {
            return Err(Short::Malformed("TCP data offset below 5 words"));
        }
        if self.l4_offset + header_len > bytes.end {
            return Err(Short::Malformed("TCP data offset beyond the packet"));
        }
        let end = self.l4_offset + header_len;
        self.transport = Transport::Tcp(Tcp {
            src_port: u16_at(tcp, 0),
            dst_port: u16_at(tcp, 2),
            seq: u32_at(tcp, 4),
            ack: u32_at(tcp, 8),
            flags: tcp[13],
            window: u16_at(tcp, 14),
            checksum: u16_at(tcp, 16),
            options: bytes.captured(self.l4_offset + 20, end),
        });
        self.set_payload(bytes, end, bytes.end);
        Ok(())
    }

    fn read_udp(&mut self, mut bytes: Bytes<'a>, first: bool) -> Result<(), Short> {
        let head: &[u8; 8] = bytes.take(self.l4_offset, "UDP header cut")?;
        let udp = Udp {
            src_port: u16_at(head, 0),
            dst_port: u16_at(head, 2),
            length: u16_at(head, 4),
            checksum: u16_at(head, 6),
        };
        let end = self.l4_offset + usize::from(udp.length);
        if udp.length < 8 {
            return Err(Short::Malformed("UDP length below 8"));
        }
        // The length of the first part is that of the whole.
        if !first {
            if end > bytes.end {
                return Err(Short::Malformed("UDP length beyond the packet"));
            }
            bytes.end = end;
        }
        if udp.dst_port == ROCE_PORT && !first {
            return self.read_roce(bytes, udp);
        }
        self.transport = Transport::Udp(udp);
        self.set_payload(bytes, self.l4_offset + 8, bytes.end);
        Ok(())
    }

    fn read_roce(&mut self, mut bytes: Bytes<'a>, udp: Udp) -> Result<(), Short> {
        let bth_at = self.l4_offset + 8;
        if bytes.end < bth_at + 12 + ICRC_BYTES {
            return Err(Short::Malformed("RoCE packet shorter than BTH and ICRC"));
        }
        let crc_at = bytes.end - ICRC_BYTES;
        let icrc = (bytes.data.get(crc_at..))
            .and_then(|rest| rest.first_chunk())
            .map(|crc| u32::from_le_bytes(*crc));
        bytes.end = crc_at;
        let head: &[u8; 12] = bytes.take(bth_at, "BTH cut")?;
        let bth = Bth {
            opcode: head[0],
            byte1: head[1],
            pkey: u16_at(head, 2),
            byte4: head[4],
            dest_qp: u24_at(head, 5),
            ack_req: head[8] & 0x80 != 0,
            psn: u24_at(head, 9),
        };
        let mut roce = Roce {
            bth,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            immediate: None,
            invalidate: None,
            icrc,
        };
        let end = roce.read_extensions(bytes, bth_at + 12);
        // What was read is shown, even when the rest is not there.
        self.transport = Transport::Roce(udp, roce);
        self.set_payload(bytes, end?, crc_at);
        Ok(())
    }

    fn set_payload(&mut self, bytes: Bytes<'a>, from: usize, to: usize) {
        self.payload_offset = from;
        self.payload_len = to - from;
        self.payload = bytes.captured(from, to);
        self.cut = self.payload.len() < self.payload_len;
    }
}

impl Roce {
    /// Reads what the opcode says extends the BTH; returns where the payload begins.
    fn read_extensions(&mut self, bytes: Bytes<'_>, mut at: usize) -> Result<usize, Short> {
        const CUT: &str = "RoCE extended header cut";
        if self.bth.opcode == opcode::CNP {
            return Ok(at);
        }
        let (transport, operation) = (self.bth.opcode >> 5, self.bth.opcode & 0x1f);
        let request = !(0x0d..=0x12).contains(&operation);
        match transport {
            // Reliable datagram: RDETH, and DETH in requests.
            2 => at += if request { 12 } else { 4 },
            3 => {
                let x: &[u8; 8] = bytes.take(at, CUT)?;
                self.deth = Some(Deth {
                    qkey: u32_at(x, 0),
                    src_qp: u24_at(x, 5),
                });
                at += 8;
            }
            // XRC: XRCETH in requests.
            5 if request => at += 4,
            _ => {}
        }
        if matches!(operation, 0x06 | 0x0a | 0x0b | 0x0c) {
            let x: &[u8; 16] = bytes.take(at, CUT)?;
            let (va, rkey, dma_len) = (u64_at(x, 0), u32_at(x, 8), u32_at(x, 12));
            self.reth = Some(Reth { va, rkey, dma_len });
            at += 16;
        }
        if matches!(operation, 0x13 | 0x14) {
            let x: &[u8; 28] = bytes.take(at, CUT)?;
            self.atomic = Some(AtomicEth {
                va: u64_at(x, 0),
                rkey: u32_at(x, 8),
                swap_add: u64_at(x, 12),
                compare: u64_at(x, 20),
            });
            at += 28;
        }
        if matches!(operation, 0x0d | 0x0f..=0x12) {
            let x: &[u8; 4] = bytes.take(at, CUT)?;
            self.aeth = Some(Aeth {
                syndrome: x[0],
                msn: u24_at(x, 1),
            });
            at += 4;
        }
        if operation == 0x12 {
            let x: &[u8; 8] = bytes.take(at, CUT)?;
            self.atomic_ack = Some(u64_at(x, 0));
            at += 8;
        }
        if matches!(operation, 0x03 | 0x05 | 0x09 | 0x0b) {
            let x: &[u8; 4] = bytes.take(at, CUT)?;
            self.immediate = Some(u32_at(x, 0));
            at += 4;
        }
        if matches!(operation, 0x16 | 0x17) {
            let x: &[u8; 4] = bytes.take(at, CUT)?;
            self.invalidate = Some(u32_at(x, 0));
            at += 4;
        }
        if at > bytes.end {
            Err(Short::Malformed(CUT))
        } else {
            Ok(at)
        }
    }

    /// What the packet is to its connection.
    pub fn kind(&self) -> Kind {
        roce_kind(self.bth.opcode, self.aeth.map_or(0, |aeth| aeth.syndrome))
    }
}

impl<'a> Tcp<'a> {
    /// Whether all bits of `bits` are set in the flags.
    pub const fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// Its options, up to the first that lies.
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options }
    }
}

/// A TCP option (RFC 9293, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size.
    Mss(u16),
    /// Shift count of the window (RFC 7323).
    WindowScale(u8),
    /// Selective acknowledgements may be sent (RFC 2018).
    SackPermitted,
    /// Blocks that were received out of order (RFC 2018).
    Sack(SackBlocks<'a>),
    /// Timestamps (RFC 7323).
    Timestamps {
        /// Clock of the sender.
        value: u32,
        /// Echo of the other end's.
        echo: u32,
    },
    /// Any other.
    Other {
        /// Its number.
        kind: u8,
        /// What it holds.
        data: &'a [u8],
    },
}

/// Iterator over TCP options.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        let kind = loop {
            let (kind, rest) = self.rest.split_first()?;
            match kind {
                0 => {
                    self.rest = &[];
                    return None;
                }
                1 => self.rest = rest,
                kind => break *kind,
            }
        };
        let len = self.rest.get(1).copied().map_or(0, usize::from);
        let Some(data) = self.rest.get(2..len) else {
            self.rest = &[];
            return None;
        };
        self.rest = &self.rest[len..];
        Some(match (kind, data.len()) {
            (2, 2) => TcpOption::Mss(u16_at(data, 0)),
            (3, 1) => TcpOption::WindowScale(data[0]),
            (4, 0) => TcpOption::SackPermitted,
            (5, len) if len % 8 == 0 => TcpOption::Sack(SackBlocks { rest: data }),
            (8, 8) => TcpOption::Timestamps {
                value: u32_at(data, 0),
                echo: u32_at(data, 4),
            },
            _ => TcpOption::Other { kind, data },
        })
    }
}

/// Iterator over SACK blocks: first sequence number, and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a> {
    rest: &'a [u8],
}

impl Iterator for SackBlocks<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let (block, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some((u32_at(block, 0), u32_at(block, 4)))
    }
}

/// Ones' complement sum of 16-bit words (RFC 1071), to be folded by [`fold`].
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks(2)
        .map(|w| u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b)));
    words.sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The checksum of `bytes` (RFC 1071): 0 when they hold their own and it is right.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    fold(sum(bytes))
}

/// The checksum of a TCP segment or UDP datagram with its pseudo header: 0 when it holds its own
/// and that is right.
pub fn transport_checksum(net: &Net, segment: &[u8]) -> u16 {
    let address = |addr: IpAddr| match addr {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    let length = segment.len() as u64;
    fold(
        address(net.src)
            + address(net.dst)
            + u64::from(net.protocol)
            + (length >> 16)
            + (length & 0xffff)
            + sum(segment),
    )
}

/// The ICRC of a whole RoCEv2 packet, from its IP header to the byte before the ICRC, whose
/// transport header begins at `l4` (InfiniBand specification, volume 1, annex A17). It goes on the
/// wire low byte first. `None` when the packet has no room for its headers.
pub fn icrc(packet: &[u8], l4: usize) -> Option<u32> {
    /// CRC-32 of the eight bytes of ones that stand for the local routing header.
    const START: u32 = !0xdebb_20e3;
    // What may change on the way counts as ones: IP's traffic class, flow label, hop limit and
    // checksum, the UDP checksum, and the byte of the BTH with FECN and BECN.
    let head_len = l4.checked_add(8 + 12)?;
    let (head, rest) = packet.split_at_checked(head_len)?;
    let ip4 = head[0] >> 4 == 4;
    if l4 < if ip4 { 20 } else { 40 } {
        return None;
    }
    let masked = |at: usize| {
        let in_ip = match (ip4, at) {
            (true, 1 | 8 | 10 | 11) => 0xff,
            (false, 0) => 0x0f,
            (false, 1 | 2 | 3 | 7) => 0xff,
            _ => 0,
        };
        let in_l4 = matches!(at.wrapping_sub(l4), 6 | 7 | 12);
        if in_l4 { 0xff } else { in_ip }
    };
    let mut crc = Hasher::new_with_initial(START);
    // The hasher is slow with single bytes.
    const PIECE: usize = 64;
    for (index, piece) in head.chunks(PIECE).enumerate() {
        let mut constant = [0; PIECE];
        for (at, (to, byte)) in constant.iter_mut().zip(piece).enumerate() {
            *to = byte | masked(index * PIECE + at);
        }
        crc.update(&constant[..piece.len()]);
    }
    crc.update(rest);
    Some(crc.finalize())
}

impl Packet<'_> {
    /// The ICRC that this RoCE packet should have; `frame` is what it was read from. `None` when
    /// it isn't RoCE or wasn't captured whole.
    pub fn expected_icrc(&self, frame: &[u8]) -> Option<u32> {
        self.roce()?.icrc?;
        let end = self.payload_offset + self.payload_len;
        icrc(
            frame.get(self.l3_offset..end)?,
            self.l4_offset - self.l3_offset,
        )
    }
}
