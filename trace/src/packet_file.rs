// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads packets from the files of others: pcap and pcapng, of either byte order and any
//! resolution of time.
//!
//! Nothing in a file is trusted: lengths are checked before they are believed, and a file that
//! was cut off gives the packets before.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::units::Nanos;

/// Link type of Ethernet (tcpdump.org registry).
pub const ETHERNET: u16 = 1;

/// Longest block or packet that is believed.
const MAX_LENGTH: u32 = 1 << 24;

const PCAP_MICROS: u32 = 0xa1b2_c3d4;
const PCAP_NANOS: u32 = 0xa1b2_3c4d;
const NG_SECTION: u32 = 0x0a0d_0d0a;
const NG_ORDER: u32 = 0x1a2b_3c4d;
const NG_INTERFACE: u32 = 1;
const NG_SIMPLE: u32 = 3;
const NG_PACKET: u32 = 6;

/// A packet from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePacket {
    /// Since 1970; zero when the file doesn't tell.
    pub time: Nanos,
    /// Number of its interface in the file, 0 in pcap.
    pub interface: usize,
    /// Bytes that the frame had.
    pub length: u32,
    /// Bytes of it that were captured.
    pub data: Vec<u8>,
}

/// An interface that packets were captured at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the file tells.
    pub name: Option<String>,
    /// What its frames begin with; see [`ETHERNET`].
    pub link_type: u16,
    resolution: Resolution,
    /// Seconds that are added to each time.
    offset: i64,
    snapshot: u32,
}

/// Fractions of a second that times count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    PowerOf10(u8),
    PowerOf2(u8),
}

impl Resolution {
    /// From `if_tsresol`.
    fn from_option(value: u8) -> Self {
        let exponent = value & 0x7f;
        if value & 0x80 == 0 {
            Self::PowerOf10(exponent)
        } else {
            Self::PowerOf2(exponent)
        }
    }

    /// In nanoseconds, saturated.
    fn nanos(self, ticks: u64) -> u64 {
        let ticks = u128::from(ticks);
        let nanos = match self {
            Self::PowerOf10(n @ 0..=9) => ticks * 10u128.pow(u32::from(9 - n)),
            Self::PowerOf10(n) => 10u128
                .checked_pow(u32::from(n) - 9)
                .map_or(0, |divisor| ticks / divisor),
            Self::PowerOf2(n) => (ticks * 1_000_000_000).checked_shr(n.into()).unwrap_or(0),
        };
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// An open pcap or pcapng file.
#[derive(Debug)]
pub struct PacketFile<R = BufReader<File>> {
    input: R,
    path: PathBuf,
    big_endian: bool,
    pcapng: bool,
    interfaces: Vec<Interface>,
    /// Of the current section.
    first_interface: usize,
    block: Vec<u8>,
}

impl PacketFile {
    /// Opens a file and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        match File::open(&path) {
            Ok(file) => Self::new(BufReader::with_capacity(1 << 18, file), path),
            Err(source) => Err(Error::File { path, source }),
        }
    }
}

impl<R: Read> PacketFile<R> {
    /// Reads the header of a file; `path` is for naming it in errors.
    pub fn new(input: R, path: impl Into<PathBuf>) -> Result<Self> {
        let mut file = Self {
            input,
            path: path.into(),
            big_endian: false,
            pcapng: false,
            interfaces: Vec::new(),
            first_interface: 0,
            block: Vec::new(),
        };
        let unknown = |file: &Self| file.wrong("neither pcap nor pcapng");
        let Some(magic) = file.word()? else {
            return Err(unknown(&file));
        };
        if magic == NG_SECTION {
            file.pcapng = true;
            file.section()?;
            return Ok(file);
        }
        file.big_endian = [PCAP_MICROS, PCAP_NANOS].contains(&magic.swap_bytes());
        let digits = match if file.big_endian {
            magic.swap_bytes()
        } else {
            magic
        } {
            PCAP_MICROS => 6,
            PCAP_NANOS => 9,
            _ => return Err(unknown(&file)),
        };
        let mut rest = [0; 20];
        file.exact(&mut rest)?;
        file.interfaces.push(Interface {
            name: None,
            // The high half tells of FCS.
            link_type: file.u32_at(&rest, 16) as u16,
            resolution: Resolution::PowerOf10(digits),
            offset: 0,
            snapshot: MAX_LENGTH,
        });
        Ok(file)
    }

    /// Interfaces told so far; pcapng may add more between packets.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Reads the next packet into `packet`, whose memory is used again; false at the end.
    pub fn read(&mut self, packet: &mut FilePacket) -> Result<bool> {
        if self.pcapng {
            self.read_ng(packet)
        } else {
            self.read_pcap(packet)
        }
    }

    fn read_pcap(&mut self, packet: &mut FilePacket) -> Result<bool> {
        let Some(first) = self.word()? else {
            return Ok(false);
        };
        let mut rest = [0; 12];
        self.exact(&mut rest)?;
        let seconds = if self.big_endian {
            first.swap_bytes()
        } else {
            first
        };
        let [fraction, captured, length] = [0, 4, 8].map(|at| self.u32_at(&rest, at));
        if captured > MAX_LENGTH {
            return Err(self.wrong("a packet is longer than any frame"));
        }
        let nanos = self.interfaces[0].resolution.nanos(fraction.into());
        packet.time = Nanos(u64::from(seconds) * 1_000_000_000 + nanos);
        packet.interface = 0;
        packet.length = length;
        packet.data.resize(captured as usize, 0);
        self.exact(&mut packet.data)?;
        Ok(true)
    }

    fn read_ng(&mut self, packet: &mut FilePacket) -> Result<bool> {
        while let Some(kind) = self.word()? {
            if kind == NG_SECTION {
                self.section()?;
                continue;
            }
            self.block_body()?;
            match if self.big_endian {
                kind.swap_bytes()
            } else {
                kind
            } {
                NG_INTERFACE => self.interface()?,
                NG_PACKET => {
                    let body = self.body(20)?;
                    let [number, high, low, captured, length] =
                        [0, 4, 8, 12, 16].map(|at| self.u32_at(body, at));
                    let ticks = u64::from(high) << 32 | u64::from(low);
                    let (index, interface) = self.nth_interface(number)?;
                    let nanos = interface.resolution.nanos(ticks);
                    let offset = interface.offset.saturating_mul(1_000_000_000);
                    packet.time = Nanos(nanos.saturating_add_signed(offset));
                    packet.interface = index;
                    packet.length = length;
                    self.fill(packet, 20, captured)?;
                    return Ok(true);
                }
                NG_SIMPLE => {
                    let length = self.u32_at(self.body(4)?, 0);
                    let (index, interface) = self.nth_interface(0)?;
                    let captured = match interface.snapshot {
                        0 => length,
                        snapshot => length.min(snapshot),
                    };
                    (packet.time, packet.interface) = (Nanos::ZERO, index);
                    packet.length = length;
                    self.fill(packet, 4, captured)?;
                    return Ok(true);
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Takes the packet's bytes from the block.
    fn fill(&self, packet: &mut FilePacket, at: usize, captured: u32) -> Result<()> {
        let data = self.block[at..].get(..captured as usize);
        let data = data.ok_or_else(|| self.wrong("a packet is longer than its block"))?;
        packet.data.clear();
        packet.data.extend_from_slice(data);
        Ok(())
    }

    /// Begins a section; its block type has been read.
    fn section(&mut self) -> Result<()> {
        let mut head = [0; 8];
        self.exact(&mut head)?;
        self.big_endian = match u32::from_le_bytes([head[4], head[5], head[6], head[7]]) {
            NG_ORDER => false,
            order if order.swap_bytes() == NG_ORDER => true,
            _ => return Err(self.wrong("a section has no byte order")),
        };
        let length = self.u32_at(&head, 0);
        self.first_interface = self.interfaces.len();
        self.body_of(length, 12)
    }

    /// Reads the rest of a block whose type has been read.
    fn block_body(&mut self) -> Result<()> {
        let mut length = [0; 4];
        self.exact(&mut length)?;
        self.body_of(self.u32_at(&length, 0), 8)
    }

    /// Reads the rest of a block of `length`, of which `had` bytes have been read.
    fn body_of(&mut self, length: u32, had: u32) -> Result<()> {
        if !length.is_multiple_of(4) || length < had + 4 || length > MAX_LENGTH {
            return Err(self.wrong("a block has an impossible length"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize((length - had) as usize, 0);
        self.exact(&mut block)?;
        let body = block.len() - 4;
        if self.u32_at(&block, body) != length {
            return Err(self.wrong("a block does not end with its length"));
        }
        block.truncate(body);
        self.block = block;
        Ok(())
    }

    fn interface(&mut self) -> Result<()> {
        let body = self.body(8)?;
        let mut interface = Interface {
            name: None,
            link_type: self.u16_at(body, 0),
            resolution: Resolution::PowerOf10(6),
            offset: 0,
            snapshot: self.u32_at(body, 4),
        };
        let mut options = &body[8..];
        while let Some((head, rest)) = options.split_first_chunk::<4>() {
            let (code, len) = (self.u16_at(head, 0), usize::from(self.u16_at(head, 2)));
            let Some(value) = rest.get(..len) else { break };
            match (code, value) {
                (0, _) => break,
                (2, name) => interface.name = Some(String::from_utf8_lossy(name).into_owned()),
                (9, [resolution]) => interface.resolution = Resolution::from_option(*resolution),
                (14, &[a, b, c, d, e, f, g, h]) => {
                    let bytes = [a, b, c, d, e, f, g, h];
                    interface.offset = match self.big_endian {
                        true => i64::from_be_bytes(bytes),
                        false => i64::from_le_bytes(bytes),
                    };
                }
                _ => {}
            }
            options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn nth_interface(&self, number: u32) -> Result<(usize, &Interface)> {
        let index = self.first_interface + number as usize;
        let interface = self.interfaces.get(index);
        Ok((
            index,
            interface.ok_or_else(|| self.wrong("a packet's interface is not described"))?,
        ))
    }

    /// The block's body, if it has at least `min` bytes.
    fn body(&self, min: usize) -> Result<&[u8]> {
        match self.block.len() >= min {
            true => Ok(&self.block),
            false => Err(self.wrong("a block is too short for what it is")),
        }
    }

    /// Four bytes as a little endian number, or `None` at the end of the file.
    fn word(&mut self) -> Result<Option<u32>> {
        let mut word = [0; 4];
        let mut have = 0;
        while have < 4 {
            match self.input.read(&mut word[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.io(ErrorKind::UnexpectedEof.into())),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(Some(u32::from_le_bytes(word)))
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.input.read_exact(buffer).map_err(|e| self.io(e))
    }

    fn u16_at(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn u32_at(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::File {
            path: self.path.clone(),
            source,
        }
    }

    fn wrong(&self, what: &'static str) -> Error {
        Error::PacketFile {
            path: self.path.clone(),
            what,
        }
    }
}
