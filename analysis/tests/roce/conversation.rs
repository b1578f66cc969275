// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes RoCE conversations, packet by packet, as frames with times.

use midwire_analysis::roce::{self, Analysis, Observed, Seen, Settings};
use midwire_trace::Nanos;
use midwire_trace::build::{self, Path};
use midwire_trace::packet::{Aeth, Bth, Reth, icrc, opcode};

pub const MTU: u32 = 1024;

/// Two queue pairs; the requester is 10.0.0.1, the responder 10.0.0.2.
pub struct Conversation {
    pub frames: Vec<Frame>,
    pub psn: u32,
    pub requester: Path,
    pub responder: Path,
    /// Of the requester and of the responder.
    pub qps: [u32; 2],
    now: u64,
    seen: Seen,
    marked: bool,
}

#[derive(Clone)]
pub struct Frame {
    pub time: u64,
    pub seen: Seen,
    pub data: Vec<u8>,
}

impl Conversation {
    /// The first PSN is `psn`; all others are told relative to it.
    pub fn new(psn: u32) -> Self {
        let requester = Path::ipv4(50_000, 0);
        Self {
            frames: Vec::new(),
            psn,
            responder: requester.reversed(),
            requester: Path {
                dst: ([10, 0, 0, 2], 0).into(),
                ..requester
            },
            qps: [0x111, 0x222],
            now: 1_000_000,
            seen: Seen::Passing,
            marked: false,
        }
    }

    /// Moves on.
    pub fn after(&mut self, ns: u64) -> &mut Self {
        self.now += ns;
        self
    }

    /// The next packet comes at this time.
    pub fn at(&mut self, time: u64) -> &mut Self {
        self.now = time - 100;
        self
    }

    /// The next packet is dropped here.
    pub fn dropped(&mut self) -> &mut Self {
        self.seen = Seen::Sent;
        self
    }

    /// The next packet is marked.
    pub fn marked(&mut self) -> &mut Self {
        self.marked = true;
        self
    }

    /// Gives the ends other queue pairs and another UDP source port, in what has been written.
    pub fn relabel(&mut self, qps: [u32; 2], port: u16) {
        for frame in &mut self.frames {
            let data = &mut frame.data;
            let end = usize::from(data[47..50] == self.qps[1].to_be_bytes()[1..]);
            data[47..50].copy_from_slice(&qps[end].to_be_bytes()[1..]);
            data[34..36].copy_from_slice(&port.to_be_bytes());
            let crc_at = data.len() - 4;
            let crc = icrc(&data[14..crc_at], 20).expect("RoCE");
            data[crc_at..].copy_from_slice(&crc.to_le_bytes());
        }
        self.qps = qps;
    }

    /// The number of the packet written last.
    pub fn number(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Adds a packet, 100 ns after the one before; its number.
    pub fn packet(&mut self, from: usize, code: u8, psn: i64, ext: &[u8], payload: usize) -> u64 {
        self.now += 100;
        let mut path = [&self.requester, &self.responder][from].clone();
        path.traffic_class |= u8::from(std::mem::take(&mut self.marked)) * 3;
        let bth = Bth {
            opcode: code,
            byte1: 0x40,
            pkey: 0xffff,
            byte4: if code == opcode::CNP { 0x40 } else { 0 },
            dest_qp: self.qps[1 - from],
            ack_req: matches!(code, 0x02 | 0x04 | 0x08 | 0x0a),
            psn: if code == opcode::CNP {
                0
            } else {
                self.psn.wrapping_add(psn as u32) & 0xff_ffff
            },
        };
        self.frames.push(Frame {
            time: self.now,
            seen: std::mem::replace(&mut self.seen, Seen::Passing),
            data: build::roce(&path, &bth, ext, &vec![0x5a; payload]),
        });
        self.number()
    }

    /// A packet of an RDMA WRITE of `count` packets that begins at `first`.
    pub fn write(&mut self, first: i64, count: i64, psn: i64) -> u64 {
        let reth = build::reth(Reth {
            va: 0x1000,
            rkey: 7,
            dma_len: count as u32 * MTU,
        });
        let (code, ext) = match psn - first {
            0 if count == 1 => (opcode::WRITE_ONLY, &reth[..]),
            0 => (opcode::WRITE_FIRST, &reth[..]),
            n if n == count - 1 => (opcode::WRITE_LAST, &[][..]),
            _ => (opcode::WRITE_MIDDLE, &[][..]),
        };
        self.packet(0, code, psn, ext, MTU as usize)
    }

    /// A SEND of one packet.
    pub fn send(&mut self, psn: i64) -> u64 {
        self.packet(0, opcode::SEND_ONLY, psn, &[], 64)
    }

    pub fn answer(&mut self, psn: i64, syndrome: u8) -> u64 {
        let aeth = build::aeth(Aeth { syndrome, msn: 1 });
        self.packet(1, opcode::ACK, psn, &aeth, 0)
    }

    pub fn ack(&mut self, psn: i64) -> u64 {
        self.answer(psn, 0x1f)
    }

    /// NAK: PSN sequence error.
    pub fn nak(&mut self, psn: i64) -> u64 {
        self.answer(psn, 0x60)
    }

    /// A read of `count` packets that began at `first`, asked for from `psn` on.
    pub fn read(&mut self, first: i64, count: i64, psn: i64) -> u64 {
        let had = (psn - first) as u32 * MTU;
        self.read_of(psn, 0x1000 + u64::from(had), count as u32 * MTU - had)
    }

    pub fn read_of(&mut self, psn: i64, va: u64, dma_len: u32) -> u64 {
        let rkey = 7;
        let reth = build::reth(Reth { va, rkey, dma_len });
        self.packet(0, opcode::READ_REQUEST, psn, &reth, 0)
    }

    /// A response of a read of `count` packets that is answered from `first` on.
    pub fn response(&mut self, first: i64, count: i64, psn: i64) -> u64 {
        let aeth = build::aeth(Aeth {
            syndrome: 0x1f,
            msn: 1,
        });
        let (code, ext) = match psn - first {
            0 if count == 1 => (opcode::READ_RESPONSE_ONLY, &aeth[..]),
            0 => (opcode::READ_RESPONSE_FIRST, &aeth[..]),
            n if n == count - 1 => (opcode::READ_RESPONSE_LAST, &aeth[..]),
            _ => (opcode::READ_RESPONSE_MIDDLE, &[][..]),
        };
        self.packet(1, code, psn, ext, MTU as usize)
    }

    /// A congestion notification from the responder.
    pub fn cnp(&mut self) -> u64 {
        self.packet(1, opcode::CNP, 0, &[0; 16], 0)
    }

    pub fn observed(&self) -> impl Iterator<Item = Observed> {
        observed(&self.frames)
    }

    pub fn analysis(&self) -> Analysis {
        self.analysis_with(Settings::default())
    }

    pub fn analysis_with(&self, settings: Settings) -> Analysis {
        roce::analyze(self.observed(), settings)
    }
}

pub fn observed(frames: &[Frame]) -> impl Iterator<Item = Observed> {
    frames.iter().zip(1..).map(|(frame, number)| {
        let Frame { time, seen, data } = frame;
        Observed::read(number, Nanos(*time), *seen, data, data.len()).expect("RoCE")
    })
}

/// The conversation for a person.
pub fn dump(frames: &[Frame]) -> String {
    let line = |p: Observed| {
        let (bth, time) = (p.roce.bth, p.time.0);
        let syndrome = p.roce.aeth.map_or(0, |aeth| aeth.syndrome);
        format!(
            "{:4} {time:9} to {:#06x} opcode {:02x} psn {} syndrome {syndrome:02x} {:?}\n",
            p.number, bth.dest_qp, bth.opcode, bth.psn, p.seen
        )
    };
    observed(frames).map(line).collect()
}
