// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connection management (InfiniBand specification, volume 1, chapter 12): before the first
//! request, the ends of a connection tell each other their queue pairs and timers.
//!
//! A request for a connection (REQ) and the reply to it (REP) are datagrams to queue pair 1. RDMA-CM
//! sends them too.

use std::collections::HashMap;
use std::net::IpAddr;

use midwire_trace::packet::{Packet, Roce};

use super::{QpSettings, Timer};

/// The queue pair of the general services.
const SERVICES: u32 = 1;
/// Header of a management datagram (13.4.3).
const HEADER: usize = 24;
/// Base version, management class, its version and method: SEND of communication management.
const SEND: [u8; 4] = [1, 7, 2, 3];
const REQUEST: u16 = 0x0010;
const REPLY: u16 = 0x0013;

/// What an end tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// It asks for a connection (REQ, 12.6.5).
    Request {
        /// Its number for the connection.
        id: u32,
        /// Its queue pair.
        qp: u32,
        /// What both ends are to do about answers that do not come, as far as it was captured.
        timer: Timer,
    },
    /// It takes one (REP, 12.6.8).
    Reply {
        /// The other end's number for the connection.
        id: u32,
        /// Its queue pair.
        qp: u32,
    },
}

impl Introduction {
    /// Of a packet, if it is one.
    pub fn read(packet: &Packet<'_>, roce: &Roce) -> Option<Self> {
        if roce.deth.is_none() || roce.bth.dest_qp != SERVICES {
            return None;
        }
        let (header, message) = packet.payload.split_at_checked(HEADER)?;
        if header[..4] != SEND {
            return None;
        }
        let number = |at: usize| {
            let bytes = message.get(at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        match u16::from_be_bytes([header[16], header[17]]) {
            REQUEST => Some(Self::Request {
                id: number(0)?,
                qp: number(32)? >> 8,
                timer: Timer {
                    // Local ACK timeout of the primary path.
                    timeout: message.get(95).map(|byte| byte >> 3),
                    retry_count: message.get(47).map(|byte| byte & 7),
                },
            }),
            REPLY => Some(Self::Reply {
                id: number(4)?,
                qp: number(12)? >> 8,
            }),
            _ => None,
        }
    }
}

/// Requests for connections that no reply was seen to, by who asked and its number.
#[derive(Default)]
pub(super) struct Requests(HashMap<(IpAddr, u32), (u32, Timer)>);

impl Requests {
    /// An end tells another of itself; what is known of the connection when both have.
    pub fn told(&mut self, [from, to]: [IpAddr; 2], told: Introduction) -> Option<QpSettings> {
        match told {
            Introduction::Request { id, qp, timer } => {
                self.0.insert((from, id), (qp, timer));
                None
            }
            Introduction::Reply { id, qp } => {
                let (asker, timer) = self.0.remove(&(to, id))?;
                Some(QpSettings {
                    ends: [(to, asker), (from, qp)],
                    timer,
                    mtu: None,
                    class: None,
                })
            }
        }
    }
}
