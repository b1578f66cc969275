// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture file at a port, in virtual time: its frames go in, and what comes out can be
//! kept in another.

use crate::calendar::{Frame, INPUT_START, Participant, Picoseconds};
use crate::core::Width;
use crate::error::{Error, Result};
use crate::mac::{MAX_FRAME, MIN_FRAME, line_time};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Exponent of a pcapng interface's time unit, when it does not say (pcapng, section 4.2).
const DEFAULT_TSRESOL: u8 = 6;
const NANOSECONDS: u8 = 9;

/// When the frames of a file go in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At the times in the file, counted from the earliest frame of both ports' files.
    #[default]
    Recorded,
    /// Back to back, as fast as the line goes.
    LineRate,
}

enum Format {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

/// Picoseconds since 1970: more than 64 bits can hold.
type Epoch = u128;

/// Frames from a pcap or pcapng file.
struct Input {
    path: PathBuf,
    format: Format,
    last: Epoch,
}

impl Input {
    pub fn open(path: &Path) -> Result<Self> {
        let what = || format!("read frames from {}", path.display());
        let mut file = File::open(path).map_err(Error::io(what()))?;
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(Error::io(what()))?;
        file.rewind().map_err(Error::io(what()))?;
        let file = BufReader::new(file);
        let fail = |e| Self::error(path, &e);
        let format = match magic {
            PCAPNG_MAGIC => Format::PcapNg(PcapNgReader::new(file).map_err(fail)?),
            _ => {
                let reader = PcapReader::new(file).map_err(fail)?;
                ethernet(path, reader.header().datalink)?;
                Format::Pcap(reader)
            }
        };
        Ok(Self {
            path: path.into(),
            format,
            last: 0,
        })
    }

    fn error(path: &Path, e: &PcapError) -> Error {
        Error::Capture {
            path: path.into(),
            reason: e.to_string(),
        }
    }

    /// The next frame and its time.
    fn next(&mut self) -> Result<Option<(Epoch, Vec<u8>)>> {
        let path = &self.path;
        let fail = |e| Self::error(path, &e);
        let (time, bytes, mut data) = match &mut self.format {
            Format::Pcap(reader) => {
                let unit = match reader.header().ts_resolution {
                    TsResolution::MicroSecond => 1_000_000,
                    TsResolution::NanoSecond => 1000,
                };
                let Some(packet) = reader.next_raw_packet() else {
                    return Ok(None);
                };
                let packet = packet.map_err(fail)?;
                let time = Epoch::from(packet.ts_sec) * 1_000_000_000_000
                    + Epoch::from(packet.ts_frac) * unit;
                (time, packet.orig_len, packet.data.into_owned())
            }
            Format::PcapNg(reader) => loop {
                let Some(block) = reader.next_block() else {
                    return Ok(None);
                };
                match block.map_err(fail)?.into_owned() {
                    Block::EnhancedPacket(packet) => {
                        let interface = reader.packet_interface(&packet).ok_or_else(|| {
                            fail(PcapError::InvalidInterfaceId(packet.interface_id))
                        })?;
                        ethernet(path, interface.linktype)?;
                        let time = picoseconds(interface, packet.timestamp);
                        break (time, packet.original_len, packet.data.into_owned());
                    }
                    Block::SimplePacket(packet) => {
                        break (self.last, packet.original_len, packet.data.into_owned());
                    }
                    _ => {}
                }
            },
        };
        self.last = time;
        // The line carried what the capture cut off, if only its length is known, and no short
        // frames: a capture on the sending host has them before the MAC pads them.
        let bytes = data.len().max(bytes as usize).max(MIN_FRAME);
        if bytes > MAX_FRAME {
            let reason = format!("a frame of {bytes} bytes");
            return Err(Error::Capture {
                path: path.clone(),
                reason,
            });
        }
        data.resize(bytes, 0);
        Ok(Some((time, data)))
    }
}

fn ethernet(path: &Path, link: DataLink) -> Result<()> {
    match link {
        DataLink::ETHERNET => Ok(()),
        other => Err(Error::Capture {
            path: path.into(),
            reason: format!("its link type is {other:?}, not Ethernet"),
        }),
    }
}

/// The reader counts an interface's time units as if they were nanoseconds.
fn picoseconds(interface: &InterfaceDescriptionBlock<'_>, units: Duration) -> Epoch {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(DEFAULT_TSRESOL);
    let per_second = match resolution & 0x80 {
        0 => 10u128.checked_pow(resolution.into()),
        _ => 2u128.checked_pow((resolution & 0x7f).into()),
    };
    let units = units.as_nanos();
    // The units come from 64 bits, so that the product fits.
    per_second.map_or(0, |unit| units * 1_000_000_000_000 / unit)
}

/// A pcapng file of what left a port.
struct Output {
    path: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
}

impl Output {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::io(format!("write {}", path.display())))?;
        let fail = |e: PcapError| Error::io(format!("write {}", path.display()))(io_error(e));
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(fail)?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(NANOSECONDS)],
        };
        writer.write_pcapng_block(interface).map_err(fail)?;
        Ok(Self {
            path: path.into(),
            writer,
        })
    }

    fn write(&mut self, frame: &Frame) -> Result<()> {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(frame.at / 1000),
            original_len: frame.data.len() as u32,
            data: Cow::Borrowed(&frame.data),
            options: Vec::new(),
        };
        let path = &self.path;
        self.writer
            .write_pcapng_block(packet)
            .map_err(|e| Error::io(format!("write {}", path.display()))(io_error(e)))?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let what = format!("write {}", self.path.display());
        self.writer.get_mut().flush().map_err(Error::io(what))
    }
}

fn io_error(e: PcapError) -> std::io::Error {
    match e {
        PcapError::IoError(e) => e,
        other => std::io::Error::other(other),
    }
}

/// A port that is fed from a file.
pub(crate) struct FilePort {
    input: Option<Input>,
    pace: Pace,
    width: Width,
    /// The file's time at which inputs start.
    origin: Epoch,
    /// The next frame, and its time in the file.
    next: Option<(Epoch, Vec<u8>)>,
    /// When the line is free after the frames so far.
    free: Picoseconds,
    output: Option<Output>,
}

impl FilePort {
    pub fn open(
        input: Option<&Path>,
        pace: Pace,
        output: Option<&Path>,
        width: Width,
    ) -> Result<Self> {
        let mut input = input.map(Input::open).transpose()?;
        let next = input.as_mut().map_or(Ok(None), Input::next)?;
        let output = output.map(Output::create).transpose()?;
        let origin = next.as_ref().map_or(0, |next| next.0);
        Ok(Self {
            input,
            pace,
            width,
            origin,
            next,
            free: INPUT_START,
            output,
        })
    }

    /// Time of the first frame, when the times in the file matter.
    pub fn first(&self) -> Option<Epoch> {
        let first = self.next.as_ref().map(|next| next.0);
        first.filter(|_| self.pace == Pace::Recorded)
    }

    /// Sets the file's time that `INPUT_START` stands for.
    pub fn set_origin(&mut self, origin: Epoch) {
        self.origin = origin;
    }

    fn card_time(&self, time: Epoch) -> Picoseconds {
        match self.pace {
            Pace::Recorded => {
                let since = time
                    .saturating_sub(self.origin)
                    .try_into()
                    .unwrap_or(Picoseconds::MAX);
                INPUT_START.saturating_add(since)
            }
            Pace::LineRate => self.free,
        }
    }
}

impl Participant for FilePort {
    fn next(&self) -> Option<Picoseconds> {
        self.next.as_ref().map(|next| self.card_time(next.0))
    }

    fn advance(&mut self, to: Picoseconds, sent: &mut Vec<Frame>) -> Result<()> {
        while let Some((time, data)) = &self.next {
            let at = self.card_time(*time);
            if at >= to {
                break;
            }
            self.free = at + line_time(self.width, data.len());
            let next = self.input.as_mut().map_or(Ok(None), Input::next);
            sent.extend(self.next.take().map(|(_, data)| Frame {
                at,
                data,
                bad: false,
            }));
            self.next = next?;
        }
        Ok(())
    }

    fn receive(&mut self, frame: Frame, _end: Picoseconds) -> Result<()> {
        match &mut self.output {
            // A frame with a wrong FCS is taken by nobody.
            Some(output) if !frame.bad => output.write(&frame),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.output.as_mut().map_or(Ok(()), Output::finish)
    }
}
