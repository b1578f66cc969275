// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inside view of a run: what the kernels at the ports said of their TCP sockets, and when.
//!
//! `inside.csv` has a line a [`Moment`], in the order of time; docs/formats.md names its columns.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::record::Record;
use crate::units::{Kind, Nanos, Port, words};

/// What Linux has for a slow start threshold as long as there is none.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// What a kernel said of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Time of the card.
    pub time_ns: Nanos,
    /// The port that the kernel is plugged into.
    pub host: Port,
    /// What made it say something.
    pub event: Event,
    /// Number of the connection, as the card counts.
    pub connection: Option<u16>,
    /// Address and port of the socket; nothing as long as it has none.
    pub local: Option<SocketAddr>,
    /// Those of the other end.
    pub remote: Option<SocketAddr>,
    /// The socket, which may be another one after it was closed.
    pub socket: u64,
    /// Congestion window, in segments.
    pub cwnd: Option<u32>,
    /// Slow start threshold, in segments; 2147483647 as long as there is none.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, in µs.
    pub srtt_us: Option<u32>,
    /// Retransmission timeout, in µs.
    pub rto_us: Option<u32>,
    /// Window of the other end, in bytes.
    pub snd_wnd: Option<u32>,
    /// Window of this end, in bytes.
    pub rcv_wnd: Option<u32>,
    /// Sequence number of the first byte that is not acknowledged.
    pub snd_una: Option<u32>,
    /// That of the next new byte.
    pub snd_nxt: Option<u32>,
    /// State of congestion control, from here on.
    pub ca_state: Option<CaState>,
    /// State of the socket, from here on.
    pub state: Option<State>,
    /// Bytes of the segment that came in, or that a program has sent or received; below 0 an error.
    pub bytes: Option<i32>,
}

impl Moment {
    /// One of which nothing else is known.
    pub fn new(time_ns: Nanos, host: Port, event: Event, socket: u64) -> Self {
        Self {
            time_ns,
            host,
            event,
            connection: None,
            local: None,
            remote: None,
            socket,
            cwnd: None,
            ssthresh: None,
            srtt_us: None,
            rto_us: None,
            snd_wnd: None,
            rcv_wnd: None,
            snd_una: None,
            snd_nxt: None,
            ca_state: None,
            state: None,
            bytes: None,
        }
    }

    /// The slow start threshold, once there is one.
    pub fn threshold(&self) -> Option<u32> {
        self.ssthresh.filter(|most| *most < NO_THRESHOLD)
    }

    /// The same, with what was said before of all that it does not say.
    fn knowing(&self, before: &Self) -> Self {
        Self {
            cwnd: self.cwnd.or(before.cwnd),
            ssthresh: self.ssthresh.or(before.ssthresh),
            srtt_us: self.srtt_us.or(before.srtt_us),
            rto_us: self.rto_us.or(before.rto_us),
            snd_wnd: self.snd_wnd.or(before.snd_wnd),
            rcv_wnd: self.rcv_wnd.or(before.rcv_wnd),
            snd_una: self.snd_una.or(before.snd_una),
            snd_nxt: self.snd_nxt.or(before.snd_nxt),
            ca_state: self.ca_state.or(before.ca_state),
            state: self.state.or(before.state),
            ..self.clone()
        }
    }
}

/// What makes a kernel say something of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A segment has come in.
    Probe,
    /// Congestion control has another state.
    CaState,
    /// A segment is sent again.
    Retransmit,
    /// A SYN-ACK is sent again.
    RetransmitSynack,
    /// The socket has another state.
    State,
    /// A program has sent.
    Send,
    /// A program has received.
    Receive,
}
words!(
    Event,
    "event of a socket",
    Probe = "probe",
    CaState = "ca-state",
    Retransmit = "retransmit",
    RetransmitSynack = "retransmit-synack",
    State = "state",
    Send = "send",
    Receive = "receive",
);

/// A state of congestion control, by its number in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaState {
    /// All is well.
    Open,
    /// There is a first sign of loss or reordering.
    Disorder,
    /// The window was reduced after an explicit congestion mark.
    Cwr,
    /// Lost segments are sent again.
    Recovery,
    /// The retransmission timer has run out.
    Loss,
}
words!(
    CaState,
    "state of congestion control",
    Open = "open",
    Disorder = "disorder",
    Cwr = "cwr",
    Recovery = "recovery",
    Loss = "loss",
);

/// A state of a TCP socket: RFC 9293's, by their numbers in Linux less 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum State {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    NewSynReceived,
}
words!(
    State,
    "state of a socket",
    Established = "established",
    SynSent = "syn-sent",
    SynReceived = "syn-received",
    FinWait1 = "fin-wait-1",
    FinWait2 = "fin-wait-2",
    TimeWait = "time-wait",
    Closed = "closed",
    CloseWait = "close-wait",
    LastAck = "last-ack",
    Listen = "listen",
    Closing = "closing",
    NewSynReceived = "new-syn-received",
);

/// What the senders of packets know.
#[derive(Clone, Debug, Default)]
pub struct Senders(HashMap<(Port, u16), Vec<Moment>>);

impl Senders {
    /// From moments in the order of time.
    pub fn new(moments: &[Moment]) -> Self {
        let mut senders = Self::default();
        for moment in moments {
            if let Some(connection) = moment.connection {
                let known = senders.0.entry((moment.host, connection)).or_default();
                let now = match known.last() {
                    Some(before) => moment.knowing(before),
                    None => moment.clone(),
                };
                known.push(now);
            }
        }
        senders
    }

    /// All that the kernel which sent a packet is known to have held of its connection when the
    /// card noted the packet.
    pub fn at(&self, record: &Record) -> Option<&Moment> {
        // What the card made no kernel sent.
        if record.kind == Kind::Injected {
            return None;
        }
        self.known(record.lane.port_in(), record.connection?, record.time)
    }

    /// All that the kernel at a port is known to have held of a connection at a time.
    pub fn known(&self, sender: Port, connection: u16, time: Nanos) -> Option<&Moment> {
        let known = self.0.get(&(sender, connection))?;
        let until = known.partition_point(|moment| moment.time_ns <= time);
        known.get(until.checked_sub(1)?)
    }
}

/// Writes moments as CSV.
pub fn write(moments: &[Moment], out: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for moment in moments {
        writer.serialize(moment)?;
    }
    Ok(writer.flush()?)
}

/// Reads moments from CSV.
pub fn read(from: impl Read) -> Result<Vec<Moment>> {
    let mut reader = csv::Reader::from_reader(from);
    Ok(reader.deserialize().collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_and_read() {
        let mut empty = Moment::new(Nanos(u64::MAX), Port::B, Event::Send, 1 << 63);
        empty.bytes = Some(-104);
        let full = Moment {
            host: Port::A,
            event: Event::Probe,
            connection: Some(3),
            local: "10.0.0.1:5001".parse().ok(),
            remote: "[fd77::2]:40000".parse().ok(),
            cwnd: Some(10),
            ssthresh: Some(0x7fff_ffff),
            ca_state: Some(CaState::Cwr),
            state: Some(State::FinWait1),
            ..empty.clone()
        };
        let moments = vec![empty, full];
        let mut file = Vec::new();
        write(&moments, &mut file).unwrap();
        assert_eq!(read(&file[..]).unwrap(), moments);
        assert!(read(&b"time_ns,host\n1,C\n"[..]).is_err());
    }
}
