// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams of connection management (InfiniBand specification, volume 1, 12.6 and 13.4).

use midwire_trace::build::{self, Path};
use midwire_trace::packet::Bth;

/// Wants reliable connection `id` between its queue pair and whichever the other end takes.
pub fn request(path: &Path, id: u32, qp: u32, [timeout, retry_count]: [u8; 2]) -> Vec<u8> {
    let mut message = [0; 232];
    message[..4].copy_from_slice(&id.to_be_bytes());
    message[32..35].copy_from_slice(&qp.to_be_bytes()[1..]);
    // Remote CM response timeout and transport service: reliable connection.
    message[43] = 20 << 3;
    message[44..47].copy_from_slice(&[0xab, 0xcd, 0xef]);
    message[47] = 20 << 3 | retry_count;
    message[50] = 3 << 4 | 7;
    message[95] = timeout << 3;
    datagram(path, 0x0010, &message)
}

/// Takes the connection that the other end calls `id`.
pub fn reply(path: &Path, id: u32, qp: u32) -> Vec<u8> {
    let mut message = [0; 232];
    message[..4].copy_from_slice(&0x5555_aaaau32.to_be_bytes());
    message[4..8].copy_from_slice(&id.to_be_bytes());
    message[12..15].copy_from_slice(&qp.to_be_bytes()[1..]);
    message[20..23].copy_from_slice(&[0x12, 0x34, 0x56]);
    message[27] = 7 << 5;
    datagram(path, 0x0013, &message)
}

fn datagram(path: &Path, attribute: u16, message: &[u8]) -> Vec<u8> {
    let mut mad = vec![1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1];
    mad.extend(attribute.to_be_bytes());
    mad.extend([0; 6]);
    mad.extend(message);
    let bth = Bth {
        opcode: 0x64,
        byte1: 0x40,
        pkey: 0xffff,
        dest_qp: 1,
        ..Bth::default()
    };
    // Queue key and source queue pair of the general services.
    let deth = [0x80, 1, 0, 0, 0, 0, 0, 1];
    build::roce(path, &bth, &deth, &mad)
}
