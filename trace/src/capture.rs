// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capture file: the card's blocks, one after the other, as they lay in the ring.
//!
//! A file that was cut off or damaged reads up to the last whole good block before the damage;
//! [`Stop`] says where that was and why. Reading takes the memory of one block, or of four for
//! reading in the order of time.

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::block::{Block, BlockHeader, Counters, Entry, HEADER_BYTES};
use crate::error::{Error, Result};
use crate::units::{Lane, Tap};

/// An open capture file.
#[derive(Debug)]
pub struct Capture {
    file: File,
    path: PathBuf,
}

impl Capture {
    /// Opens a capture. Its contents are not looked at yet.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(source) => Err(Error::File { path, source }),
        }
    }

    /// Its blocks in order, from the first.
    pub fn blocks(&self) -> Blocks<'_> {
        Blocks {
            capture: self,
            buffer: Vec::new(),
            offset: 0,
            header: None,
            next_seq: 0,
            ended: false,
            stop: None,
        }
    }

    /// Its records in the order in which they were written.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            blocks: self.blocks(),
            only: None,
            current: None,
            next: (0, 0),
        }
    }

    /// The records of one tap of one lane, in the order in which they were written.
    pub fn entries_of(&self, lane: Lane, tap: Tap) -> Entries<'_> {
        Entries {
            only: Some((lane, tap)),
            ..self.entries()
        }
    }

    /// All records in the order of their times. Each tap of each lane is in order by itself; so
    /// the file is read by four readers, and their records are merged.
    pub fn by_time(&self) -> ByTime<'_> {
        let taps =
            Lane::ALL.map(|lane| [Tap::Ingress, Tap::Egress].map(|tap| self.entries_of(lane, tap)));
        let [[a, b], [c, d]] = taps;
        ByTime {
            taps: [a, b, c, d],
            last: None,
        }
    }

    /// Reads as many bytes as `buffer` has room for, or up to the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut have = 0;
        while have < buffer.len() {
            match self.file.read_at(&mut buffer[have..], offset + have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::File {
                        path: self.path.clone(),
                        source,
                    });
                }
            }
        }
        Ok(have)
    }
}

/// Where reading stopped before the end of the file, and why.
#[derive(Debug)]
pub struct Stop {
    /// Byte in the file at which the block begins that could not be read.
    pub offset: u64,
    /// Number of that block: as many blocks are whole and good.
    pub block: u64,
    /// What is wrong with it.
    pub reason: Error,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block {} at byte {}: {}",
            self.block, self.offset, self.reason
        )
    }
}

/// Reads a capture block by block.
#[derive(Debug)]
pub struct Blocks<'c> {
    capture: &'c Capture,
    buffer: Vec<u8>,
    /// Of the next block.
    offset: u64,
    /// Of the block in `buffer`.
    header: Option<BlockHeader>,
    next_seq: u64,
    ended: bool,
    stop: Option<Stop>,
}

impl Blocks<'_> {
    /// The next block, or `None` at the end or where the capture is damaged.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        if !self.ended {
            match self.read() {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(reason) => {
                    self.ended = true;
                    let block = self.next_number();
                    self.stop = Some(Stop {
                        offset: self.offset,
                        block,
                        reason,
                    });
                }
            }
        }
        if self.ended { None } else { self.current() }
    }

    /// Where and why reading stopped, unless the file ended with a whole block.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    fn current(&self) -> Option<Block<'_>> {
        self.header
            .map(|header| Block::trusted(header, &self.buffer))
    }

    fn next_number(&self) -> u64 {
        self.header.map_or(0, |header| header.number + 1)
    }

    /// Reads the next block into the buffer; false at the end of the file.
    fn read(&mut self) -> Result<bool> {
        if self.header.is_none() {
            let mut head = [0; HEADER_BYTES];
            let have = self.capture.read_at(&mut head, 0)?;
            if have == 0 {
                return Ok(false);
            }
            if head[..have].iter().all(|&byte| byte == 0) {
                return Err(Error::Unwritten);
            }
            let header = BlockHeader::peek(&head[..have])?;
            self.buffer = vec![0; header.block_bytes as usize];
        }
        let needed = self.buffer.len();
        let have = self.capture.read_at(&mut self.buffer, self.offset)?;
        if have == 0 {
            return Ok(false);
        }
        if self.header.is_some_and(|header| header.last) {
            return Err(Error::AfterFinal);
        }
        if have < needed {
            return Err(Error::CutOff { needed, have });
        }
        if self.buffer.iter().all(|&byte| byte == 0) {
            return Err(Error::Unwritten);
        }
        let header = Block::parse(&self.buffer)?.header;
        let follows = |field, expected, found| {
            if expected == found {
                Ok(())
            } else {
                Err(Error::Order {
                    field,
                    expected,
                    found,
                })
            }
        };
        follows("block number", self.next_number(), header.number)?;
        follows(
            "sequence number of the first record",
            self.next_seq,
            header.first_seq,
        )?;
        if let Some(before) = self.header {
            let (was, is) = (before.snapshot_bytes, header.snapshot_bytes);
            follows("snapshot length", was.into(), is.into())?;
        }
        follows("block length", needed as u64, header.block_bytes.into())?;
        self.next_seq = header
            .first_seq
            .checked_add(header.records.into())
            .ok_or(Error::Size {
                field: "records",
                value: header.records,
            })?;
        self.offset += needed as u64;
        self.header = Some(header);
        Ok(true)
    }
}

/// Reads a capture record by record.
#[derive(Debug)]
pub struct Entries<'c> {
    blocks: Blocks<'c>,
    only: Option<(Lane, Tap)>,
    /// Where the current record begins in the block's units, and the records from it on.
    current: Option<(usize, u32)>,
    /// The same of the record after it.
    next: (usize, u32),
}

impl Entries<'_> {
    /// The next record, or `None` at the end or where the capture is damaged.
    pub fn next_entry(&mut self) -> Option<Entry<'_>> {
        self.advance();
        self.entry()
    }

    /// Header of the block that the current record lies in.
    pub fn header(&self) -> Option<&BlockHeader> {
        self.blocks.header.as_ref()
    }

    /// Where and why reading stopped, unless the file ended with a whole block.
    pub fn stop(&self) -> Option<&Stop> {
        self.blocks.stop()
    }

    /// The current record, once more.
    fn entry(&self) -> Option<Entry<'_>> {
        let (at, left) = self.current?;
        self.blocks.current()?.records_from(at, left).next()
    }

    fn advance(&mut self) {
        self.current = self.find();
    }

    /// Goes on to the next record that is wanted.
    fn find(&mut self) -> Option<(usize, u32)> {
        loop {
            while self.next.1 == 0 {
                self.next = (0, self.blocks.next_block()?.header.records);
            }
            let mut records = self
                .blocks
                .current()?
                .records_from(self.next.0, self.next.1);
            while let Some(entry) = records.next() {
                let here = std::mem::replace(&mut self.next, records.place());
                let record = &entry.record;
                if self
                    .only
                    .is_none_or(|only| only == (record.lane, record.tap))
                {
                    return Some(here);
                }
            }
        }
    }
}

/// Reads a capture in the order of time.
#[derive(Debug)]
pub struct ByTime<'c> {
    taps: [Entries<'c>; 4],
    last: Option<usize>,
}

impl ByTime<'_> {
    /// The next record, or `None` at the end or where the capture is damaged.
    pub fn next_entry(&mut self) -> Option<Entry<'_>> {
        match self.last {
            Some(last) => self.taps[last].advance(),
            None => self.taps.iter_mut().for_each(Entries::advance),
        }
        let time = |tap: &Entries<'_>| tap.entry().map(|entry| entry.record.time);
        let (_, first) = (self.taps.iter().enumerate())
            .filter_map(|(index, tap)| Some((time(tap)?, index)))
            .min()
            .unwrap_or_default();
        self.last = Some(first);
        self.taps[first].entry()
    }

    /// Where and why reading stopped, unless the file ended with a whole block.
    pub fn stop(&self) -> Option<&Stop> {
        self.taps.iter().find_map(Entries::stop)
    }

    /// Counters of the latest block that was read.
    pub fn counters(&self) -> Counters {
        let headers = self.taps.iter().filter_map(Entries::header);
        headers
            .max_by_key(|header| header.number)
            .map_or_else(Counters::default, |h| h.counters)
    }
}
