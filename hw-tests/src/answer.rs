// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame that must be made in answer to a packet, written from what the driver says of
//! templates; built with its checksums by midwire-trace.

use midwire_driver::{Answer, RoceMessage, SequenceNumber, Template, Toward};
use midwire_trace::Packet;
use midwire_trace::build::{Path, TcpSegment, aeth, roce, tcp};
use midwire_trace::packet::tcp_flags::{FIN, SYN};
use midwire_trace::packet::{Aeth, Bth, Transport, opcode};
use std::net::SocketAddr;

/// Bytes of two addresses of the link layer.
const ADDRESSES: usize = 12;

/// What is made of a packet that came as `frame`; nothing when the template is not for it.
pub(crate) fn answer(template: &Template, packet: &Packet<'_>, frame: &[u8]) -> Option<Vec<u8>> {
    let back = template.toward == Toward::Sender;
    // Below IP all is as in the packet, in its direction.
    let below = |made: Vec<u8>| {
        let (dst, src) = (&frame[..6], &frame[6..ADDRESSES]);
        let addresses = if back { [src, dst] } else { [dst, src] };
        let tags = &frame[ADDRESSES..packet.l3_offset];
        [&addresses.concat(), tags, &made[ADDRESSES + 2..]].concat()
    };
    let path = |src_port, dst_port, traffic_class| {
        let net = packet.net?;
        let path = Path::new(
            SocketAddr::new(net.src, src_port),
            SocketAddr::new(net.dst, dst_port),
        );
        Some(Path {
            traffic_class,
            ..if back { path.reversed() } else { path }
        })
    };
    let whole = packet.malformed.is_none();
    let mut made = match (&template.answer, &packet.transport) {
        (Answer::Tcp(answer), Transport::Tcp(tcp_header)) if whole => {
            let extra = [SYN, FIN].map(|flag| u32::from(tcp_header.flags & flag != 0));
            let data = packet.payload_len as u32 + extra[0] + extra[1];
            let number = match answer.number {
                SequenceNumber::First => tcp_header.seq,
                SequenceNumber::Next => tcp_header.seq.wrapping_add(data),
            };
            let (seq, ack) = match template.toward {
                Toward::Sender => (tcp_header.ack, number),
                Toward::Receiver => (number, tcp_header.ack),
            };
            let segment = TcpSegment {
                seq,
                ack,
                flags: answer.flags,
                window: answer.window,
                options: vec![],
            };
            let path = path(tcp_header.src_port, tcp_header.dst_port, 0)?;
            below(tcp(&path, &segment, b""))
        }
        (Answer::Roce(answer), Transport::Roce(udp, seen)) if whole => {
            // The source port stays, whichever way it goes.
            let mut path = path(udp.src_port, udp.src_port, answer.traffic_class)?;
            path.src.set_port(udp.src_port);
            let (opcode, byte4, psn, extension) = match answer.message {
                RoceMessage::Ack { syndrome, msn } => {
                    // Of a packet without AETH it is what stands in its place.
                    let at = packet.l4_offset + 8 + 12 + 1;
                    let there = frame
                        .get(at..at + 3)
                        .map_or(0, |b| u32::from_be_bytes([0, b[0], b[1], b[2]]));
                    let msn = msn.unwrap_or(there);
                    (opcode::ACK, 0, seen.bth.psn, aeth(Aeth { syndrome, msn }))
                }
                RoceMessage::Cnp => (opcode::CNP, 0x40, 0, vec![0; 16]),
            };
            let bth = Bth {
                opcode,
                byte1: 0x40,
                pkey: seen.bth.pkey,
                byte4,
                dest_qp: answer.queue_pair.unwrap_or(seen.bth.dest_qp),
                ack_req: false,
                psn,
            };
            below(roce(&path, &bth, &extension, b""))
        }
        (Answer::Pause(pause), _) => {
            // As the neighbour of the one that shall pause would send it.
            let src = if back { 0..6 } else { 6..12 };
            let mut made = [&[0x01, 0x80, 0xc2, 0, 0, 1], &frame[src], &[0x88, 0x08]].concat();
            match pause.priorities {
                None => {
                    made.extend([0, 1]);
                    made.extend(pause.quanta.to_be_bytes());
                }
                Some(priorities) => {
                    made.extend([1, 1, 0, priorities]);
                    for priority in 0..8 {
                        let asked = priorities & 1 << priority != 0;
                        made.extend(if asked { pause.quanta } else { 0 }.to_be_bytes());
                    }
                }
            }
            made
        }
        (Answer::Bytes(bytes), _) => bytes.clone(),
        _ => return None,
    };
    made.resize(made.len().max(60), 0);
    Some(made)
}
