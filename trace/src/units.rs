// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The small types that everything else is made of: time, lanes, ports, kinds, flag bits.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Card time, or a span of it, in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero, or no time at all.
    pub const ZERO: Self = Self(0);

    /// From microseconds; saturates.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// From milliseconds; saturates.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// From seconds; saturates.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// The time nearest to `self` whose low 32 bits are `low`: records carry no more than these.
    #[inline]
    pub const fn nearest(self, low: u32) -> Self {
        let ahead = low.wrapping_sub(self.0 as u32) as i32;
        Self(self.0.wrapping_add_signed(ahead as i64))
    }

    /// Time since `earlier`, zero when that is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Time between both, whichever is later.
    pub const fn apart(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// In seconds, rounded to what an `f64` holds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

/// Shown exactly, in the largest unit that leaves at least 1: `250 ns`, `1.5 us`, `2.000001 s`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, digits, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, 3, "us"),
            1_000_000..1_000_000_000 => (1_000_000, 6, "ms"),
            _ => (1_000_000_000, 9, "s"),
        };
        let fraction = format!("{:0digits$}", self.0 % unit);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{} {name}", self.0 / unit),
            fraction => write!(f, "{}.{fraction} {name}", self.0 / unit),
        }
    }
}

/// Shortest Ethernet frame, bytes without FCS (IEEE 802.3, 3.2.8).
pub const MIN_FRAME: usize = 60;

/// Bytes that a frame takes on the line before its first: preamble and start delimiter (IEEE 802.3,
/// 3.1).
pub const PREAMBLE: u64 = 8;
/// Bytes of the frame check sequence (IEEE 802.3, 3.2.9).
pub const FCS: u64 = 4;
/// Bytes of silence after a frame (IEEE 802.3, 4.4.2).
pub const GAP: u64 = 12;

/// Bytes that a frame of `length` bytes without FCS takes on the line.
pub const fn line_bytes(length: usize) -> u64 {
    PREAMBLE + length as u64 + FCS + GAP
}

/// Packet sequence number of RoCE: 24 bits that wrap, compared by serial arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Psn(u32);

impl Psn {
    /// Of the low 24 bits of a number.
    pub const fn new(number: u64) -> Self {
        Self((number & 0xff_ffff) as u32)
    }

    /// The 24 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number nearest to `near` whose low 24 bits these are: a count that goes on through the
    /// wrap.
    pub const fn nearest(self, near: u64) -> u64 {
        let ahead = (self.0.wrapping_sub(near as u32) << 8) as i32 >> 8;
        near.wrapping_add_signed(ahead as i64)
    }
}

/// Gives an enum its words: `Display`, `FromStr`, serde and the list of all values.
macro_rules! words {
    ($name:ident, $what:literal, $($variant:ident = $word:literal),+ $(,)?) => {
        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for it, as plans and reports use it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::ALL
                    .into_iter()
                    .find(|value| value.as_str() == text)
                    .ok_or_else(|| Error::Name { what: $what, text: text.to_owned() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                text.parse().map_err(|error: Error| {
                    let words = [$($word),+].join(", ");
                    serde::de::Error::custom(format_args!("{error}, expected one of {words}"))
                })
            }
        }
    };
}

pub(crate) use words;

/// One of the card's two Ethernet ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// Port A.
    A = 0,
    /// Port B.
    B = 1,
}
words!(Port, "port", A = "A", B = "B");

impl Port {
    /// 0 for A, 1 for B.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The one at the other side of the card.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The lane that frames take that come in here.
    pub const fn lane(self) -> Lane {
        match self {
            Self::A => Lane::AtoB,
            Self::B => Lane::BtoA,
        }
    }
}

/// One direction through the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// In at port A, out at port B.
    AtoB = 0,
    /// In at port B, out at port A.
    BtoA = 1,
}
words!(Lane, "lane", AtoB = "a-to-b", BtoA = "b-to-a");

impl Lane {
    /// 0 for A to B, 1 for B to A.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other direction.
    pub const fn other(self) -> Self {
        match self {
            Self::AtoB => Self::BtoA,
            Self::BtoA => Self::AtoB,
        }
    }

    /// Where its frames come in.
    pub const fn port_in(self) -> Port {
        match self {
            Self::AtoB => Port::A,
            Self::BtoA => Port::B,
        }
    }

    /// Where its frames leave.
    pub const fn port_out(self) -> Port {
        self.port_in().other()
    }

    pub(crate) const fn from_bit(bit: u8) -> Self {
        if bit & 1 == 0 { Self::AtoB } else { Self::BtoA }
    }
}

/// Where in a lane a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tap {
    /// Of every frame, as it came in.
    Ingress = 0,
    /// Of a frame that an event touched, as it left.
    Egress = 1,
}
words!(Tap, "tap", Ingress = "ingress", Egress = "egress");

impl Tap {
    /// 0 for ingress, 1 for egress.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Transport that the card saw in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proto {
    /// Not IP, or IP of another protocol, or malformed.
    Other = 0,
    /// TCP.
    Tcp = 1,
    /// RoCEv2: UDP to port 4791.
    Roce = 2,
    /// Any other UDP.
    Udp = 3,
}
words!(
    Proto,
    "protocol",
    Other = "other",
    Tcp = "tcp",
    Roce = "roce",
    Udp = "udp",
);

impl Proto {
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Other,
            1 => Self::Tcp,
            2 => Self::Roce,
            _ => Self::Udp,
        }
    }
}

/// What a packet is to its connection; part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Every packet of the connection.
    Any = 0,
    /// Carries payload, or takes a PSN other than as a read request.
    Data = 1,
    /// Acknowledges, and nothing else.
    Ack = 2,
    /// RoCE negative acknowledgement, receiver not ready among them.
    Nak = 3,
    /// RoCE congestion notification.
    Cnp = 4,
    /// RoCE read request.
    ReadRequest = 5,
    /// TCP SYN, with or without ACK.
    Syn = 6,
    /// TCP FIN.
    Fin = 7,
    /// TCP RST.
    Rst = 8,
    /// Made by the card, in answer to a packet.
    Injected = 9,
    /// Of no transport that is tracked.
    Other = 15,
}
words!(
    Kind,
    "kind",
    Any = "any",
    Data = "data",
    Ack = "ack",
    Nak = "nak",
    Cnp = "cnp",
    ReadRequest = "read-request",
    Syn = "syn",
    Fin = "fin",
    Rst = "rst",
    Injected = "injected",
    Other = "other",
);

impl Kind {
    /// Kinds that have positions: `Any` to `Rst`.
    pub const COUNT: usize = 9;

    /// The number in records and tables; below [`Kind::COUNT`] but for `Injected` and `Other`.
    pub const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 0xf {
            0 => Self::Any,
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Nak,
            4 => Self::Cnp,
            5 => Self::ReadRequest,
            6 => Self::Syn,
            7 => Self::Fin,
            8 => Self::Rst,
            9 => Self::Injected,
            _ => Self::Other,
        }
    }
}

/// Gives a byte of flags its constants, tests and words.
macro_rules! bits {
    ($name:ident, $($(#[$doc:meta])* $flag:ident = $bit:literal, $word:literal);+ $(;)?) => {
        impl $name {
            $($(#[$doc])* pub const $flag: Self = Self(1 << $bit);)+

            /// Each bit that has a meaning, with its word.
            pub const NAMES: &[(Self, &str)] = &[$((Self::$flag, $word)),+];

            /// Whether all bits of `other` are set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether no bit of `other` is set.
            #[inline]
            pub const fn is_disjoint(self, other: Self) -> bool {
                self.0 & other.0 == 0
            }

            /// Whether no bit is set.
            #[inline]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The bits of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        /// The words of the bits that are set, joined by `+`; `-` when there are none.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut first = true;
                for (flag, word) in Self::NAMES {
                    if self.contains(*flag) {
                        if !first {
                            f.write_str("+")?;
                        }
                        f.write_str(word)?;
                        first = false;
                    }
                }
                if first { f.write_str("-") } else { Ok(()) }
            }
        }
    };
}

/// What an event asked for (ingress record) or what was done (egress record).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Actions(pub u8);
bits!(
    Actions,
    /// Not forwarded.
    DROP = 0, "drop";
    /// ECN field set.
    ECN = 1, "ecn";
    /// A byte changed, or a checksum left wrong.
    CORRUPT = 2, "corrupt";
    /// Held back.
    DELAY = 3, "delay";
    /// Bytes rewritten.
    SET = 4, "set";
    /// Overtaken by later packets.
    REORDER = 5, "reorder";
    /// Sent more than once.
    DUPLICATE = 6, "duplicate";
    /// Cut short.
    TRUNCATE = 7, "truncate";
);

/// What else a record says of its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flags(pub u8);
bits!(
    Flags,
    /// Begins below the highest position seen: a retransmission.
    BELOW = 0, "below";
    /// The MAC marked the frame as bad.
    ERROR = 1, "error";
    /// IPv6.
    IP6 = 2, "ip6";
    /// A snapshot follows the record.
    SNAPSHOT = 3, "snapshot";
    /// A header lies or is cut.
    MALFORMED = 4, "malformed";
    /// Longer than the longest frame, cut there.
    TRUNCATED = 5, "truncated";
    /// More than one event slot hit; the record names the first.
    MULTI = 6, "multi";
    /// The matcher was overloaded: not every event was looked up.
    UNMATCHED = 7, "unmatched";
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_time_is_right_at_both_wraps() {
        let block = Nanos(0x1_0000_0010);
        assert_eq!(block.nearest(0x20), Nanos(0x1_0000_0020));
        assert_eq!(block.nearest(0xffff_fff0), Nanos(0xffff_fff0));
        assert_eq!(Nanos(0xffff_fff0).nearest(5), Nanos(0x1_0000_0005));
        assert_eq!(Nanos(0).nearest(0x7fff_ffff), Nanos(0x7fff_ffff));
    }

    #[test]
    fn psns_go_on_through_the_wrap() {
        assert_eq!(Psn::new(0x1_00ff_fffe).get(), 0xff_fffe);
        assert_eq!(Psn::new(2).nearest(0x1ff_fffe), 0x200_0002);
        assert_eq!(Psn::new(0xff_fffe).nearest(0x200_0002), 0x1ff_fffe);
        assert_eq!(Psn::new(0x7f_ffff).nearest(0x100_0000), 0x17f_ffff);
        assert_eq!(Psn::new(0x80_0000).nearest(0x100_0000), 0x80_0000);
    }

    #[test]
    fn spans_are_shown_exactly() {
        assert_eq!(Nanos(0).to_string(), "0 ns");
        assert_eq!(Nanos(1_500).to_string(), "1.5 us");
        assert_eq!(Nanos(20_000_000).to_string(), "20 ms");
        assert_eq!(Nanos(2_000_001_000).to_string(), "2.000001 s");
    }

    #[test]
    fn words_read_back() {
        for lane in Lane::ALL {
            assert_eq!(lane.to_string().parse::<Lane>().unwrap(), lane);
        }
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
            assert_eq!(Kind::from_bits(kind.number()), kind);
        }
        assert_eq!(Lane::AtoB.to_string(), "a-to-b");
        assert!("sideways".parse::<Lane>().is_err());
        assert_eq!((Actions::DROP | Actions::DELAY).to_string(), "drop+delay");
        assert_eq!(Flags(0).to_string(), "-");
    }
}
