// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The capture file: blocks written straight from ring memory, in any order that the disk
//! likes. io_uring with O_DIRECT where the file is on a disk and kernel and file system can,
//! plain writes elsewhere: a write to memory has nothing to wait for, and io_uring would hand
//! each to a thread. On a disk room is made ahead, so that writes need not wait for each other.

use io_uring::{IoUring, opcode, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes that are on their way to the disk at a time.
const DEPTH: u32 = 32;

/// Bytes of the file for which room is made at a time; a multiple of every block.
const RESERVE: u64 = 256 << 20;

/// Where the blocks of a ring are in memory.
#[derive(Clone, Copy)]
pub(crate) struct RingMemory {
    base: *mut u8,
    block_bytes: usize,
    mask: u64,
}

// SAFETY: the value is an address; who uses it answers for what is done there.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// # Safety
    /// `base` must start `block_bytes << blocks_log2` bytes of mapped memory that outlive
    /// every use of the value.
    pub unsafe fn new(base: *mut u8, block_bytes: usize, blocks_log2: u32) -> Self {
        let mask = (1u64 << blocks_log2) - 1;
        Self {
            base,
            block_bytes,
            mask,
        }
    }

    /// Start of the memory that block `number` takes.
    pub fn block(&self, number: u64) -> *mut u8 {
        // SAFETY: the masked index lies inside the memory that `new` was promised.
        unsafe {
            self.base
                .add((number & self.mask) as usize * self.block_bytes)
        }
    }

    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub fn blocks(&self) -> u64 {
        self.mask + 1
    }
}

/// Whether the file's system keeps it in memory.
fn in_memory(file: &File) -> bool {
    // SAFETY: statfs is plain data, for which all zeros is a valid value.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, and memory that the call fills.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) } == 0;
    known && about.f_type == libc::TMPFS_MAGIC
}

/// A capture file being written. Blocks are numbered from 0 without gaps.
pub(crate) struct BlockFile {
    file: File,
    ring: RingMemory,
    uring: Option<Uring>,
    /// Blocks handed over; all below `written` are in the file.
    submitted: u64,
    written: u64,
}

struct Uring {
    uring: IoUring,
    /// Bytes of the file that the disk has room for.
    reserved: u64,
    in_flight: u64,
    /// Bit n: block `written + n` has reached the file.
    arrived: u64,
}

impl BlockFile {
    /// Creates the file; one that is there is emptied. `uring` false keeps to plain writes.
    pub fn create(path: &Path, ring: RingMemory, uring: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut direct = options.clone();
        direct.custom_flags(libc::O_DIRECT);
        // Refused in many containers; plain writes do as well there.
        let new = || IoUring::new(DEPTH).ok();
        let on_disk = |file: &File| !in_memory(file);
        let opened = uring
            .then(|| Some((direct.open(path).ok().filter(on_disk)?, new()?)))
            .flatten();
        let (file, uring) = match opened {
            Some((file, uring)) => (file, Some(uring)),
            None => (options.open(path)?, None),
        };
        let uring = uring.map(|uring| Uring {
            uring,
            reserved: 0,
            in_flight: 0,
            arrived: 0,
        });
        Ok(Self {
            file,
            ring,
            uring,
            submitted: 0,
            written: 0,
        })
    }

    /// Blocks in the file, without a gap from the first one.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Hands over the next block. Its memory must stay as it is until `written` has passed it.
    pub fn submit(&mut self) -> io::Result<()> {
        let number = self.submitted;
        let block = self.ring.block(number);
        let len = self.ring.block_bytes();
        let Some(uring) = &mut self.uring else {
            self.write_now(number)?;
            self.submitted += 1;
            self.written += 1;
            return Ok(());
        };
        uring.reserve(&self.file, (number + 1) * len as u64);
        let entry = opcode::Write::new(types::Fd(self.file.as_raw_fd()), block, len as u32)
            .offset(number * len as u64)
            .build()
            .user_data(number);
        // SAFETY: the block is mapped and left alone until the write has completed, as the
        // caller promises; the file is open as long as `self`, and drop waits for every write.
        unsafe { uring.uring.submission().push(&entry) }.map_err(io::Error::other)?;
        uring.in_flight += 1;
        self.submitted += 1;
        self.uring_call(0)?;
        self.reap()?;
        // Bit n of `arrived` must name every block that is on its way.
        while self.submitted - self.written >= u64::from(DEPTH) {
            self.uring_call(1)?;
            self.reap()?;
        }
        Ok(())
    }

    /// Waits until all blocks handed over are in the file.
    pub fn finish(&mut self) -> io::Result<()> {
        while self.written < self.submitted {
            if self.completion_fd().is_none() {
                return Err(io::Error::other("a write failed before"));
            }
            self.uring_call(1)?;
            self.reap()?;
        }
        Ok(())
    }

    /// Waits until the disk has answered for every write, well or not: from then on it reads
    /// no ring memory any more.
    pub fn settle(&mut self) {
        while self.completion_fd().is_some() {
            if self.uring_call(1).is_err() {
                break;
            }
            let _ = self.reap();
        }
    }

    /// Cuts off what lies behind the last whole block and lets the kernel know that all is
    /// written. For files that have a length.
    pub fn trim(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            self.file
                .set_len(self.written * self.ring.block_bytes() as u64)?;
        }
        Ok(())
    }

    /// Takes note of writes that have completed.
    pub fn reap(&mut self) -> io::Result<()> {
        let mut failed = Ok(());
        while let Some(uring) = &mut self.uring {
            let Some(done) = uring.uring.completion().next() else {
                break;
            };
            uring.in_flight -= 1;
            let number = done.user_data();
            if done.result() as usize != self.ring.block_bytes() || done.result() < 0 {
                // A short write, or a file system that takes O_DIRECT but not this write:
                // the plain way either succeeds or tells the reason.
                self.set_buffered();
                if let Err(e) = self.write_now(number) {
                    failed = Err(e);
                    continue;
                }
            }
            if let Some(uring) = &mut self.uring {
                uring.arrived |= 1 << (number - self.written);
                let whole = uring.arrived.trailing_ones();
                uring.arrived = uring.arrived.checked_shr(whole).unwrap_or(0);
                self.written += u64::from(whole);
            }
        }
        failed
    }

    /// Descriptor that becomes readable when writes complete.
    pub fn completion_fd(&self) -> Option<RawFd> {
        let uring = self.uring.as_ref().filter(|u| u.in_flight > 0)?;
        Some(uring.uring.as_raw_fd())
    }

    fn uring_call(&mut self, want: usize) -> io::Result<()> {
        let Some(uring) = &self.uring else {
            return Ok(());
        };
        loop {
            match uring.uring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn set_buffered(&self) {
        let fd = self.file.as_raw_fd();
        // SAFETY: plain calls on an open descriptor. Should they fail, the write that follows
        // fails too and is reported.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags >= 0 {
                libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_DIRECT);
            }
        }
    }

    /// Writes block `number` in place. By pointer, since the card may have it back as soon as
    /// it is written.
    fn write_now(&self, number: u64) -> io::Result<()> {
        let block = self.ring.block(number);
        let len = self.ring.block_bytes();
        let start = number * len as u64;
        let mut done = 0;
        while done < len {
            // SAFETY: `done..len` of the block is mapped memory that the kernel reads only.
            let n = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    block.add(done).cast(),
                    len - done,
                    (start + done as u64) as libc::off_t,
                )
            };
            match n {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n if n > 0 => done += n as usize,
                _ => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Uring {
    /// Makes room up to `end`. A write that needs no new room of the file system waits for no
    /// other and takes no thread of the kernel's; without it, it takes longer.
    fn reserve(&mut self, file: &File, end: u64) {
        if end > self.reserved {
            let (start, len) = (self.reserved as libc::off_t, RESERVE as libc::off_t);
            // SAFETY: a plain call on an open descriptor.
            unsafe { libc::fallocate(file.as_raw_fd(), 0, start, len) };
            self.reserved += RESERVE;
        }
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn write_blocks(path: &Path, uring: bool, blocks: u64) -> io::Result<u64> {
        let log2 = 2;
        let map = memmap2::MmapOptions::new()
            .len(BLOCK << log2)
            .map_anon()
            .expect("memory");
        let map = memmap2::MmapRaw::from(map);
        // SAFETY: `map` is that long and outlives `file`.
        let ring = unsafe { RingMemory::new(map.as_mut_ptr(), BLOCK, log2) };
        let mut file = BlockFile::create(path, ring, uring)?;
        for number in 0..blocks {
            while number >= file.written() + ring.blocks() {
                file.finish()?;
            }
            // SAFETY: the block is inside `map` and its last write has completed.
            unsafe { ring.block(number).write_bytes(number as u8 + 1, BLOCK) };
            file.submit()?;
        }
        file.finish()?;
        file.trim()?;
        Ok(file.written())
    }

    #[test]
    fn both_ways_write_the_same_file() {
        let dir = tempfile::tempdir().expect("tempdir");
        for (name, uring) in [("plain", false), ("uring", true)] {
            let path = dir.path().join(name);
            assert_eq!(write_blocks(&path, uring, 100).expect("written"), 100);
            let bytes = std::fs::read(&path).expect("read");
            assert_eq!(bytes.len(), 100 * BLOCK);
            for (number, block) in bytes.chunks(BLOCK).enumerate() {
                assert!(block.iter().all(|&b| b == number as u8 + 1), "{number}");
            }
        }
    }

    #[test]
    fn a_full_disk_is_an_error_both_ways() {
        for uring in [false, true] {
            let e = write_blocks(Path::new("/dev/full"), uring, 3).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "uring {uring}");
        }
    }
}
