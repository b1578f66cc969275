// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a User-Mode Linux kernel in time travel: the other end of
//! `time-travel=ext:ID:SOCKET`, in shared memory (include/uapi/linux/um_timetravel.h, Linux 6.12).
//!
//! Every kernel has a memory of its own, in which it is always the one that runs. So the clocks
//! of several do not depend on each other between two meetings. All times are in nanoseconds since
//! the kernel's start.

use std::fs::File;
use std::io::{self, Read as _, Write as _, stderr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::sys::{self, Shared};

const ACK: u32 = 0;
const START: u32 = 1;
const WAIT: u32 = 3;
const RUN: u32 = 6;
const GET_TOD: u32 = 8;

// struct um_timetravel_schedshm, with its clients behind the first page; 0 is the calendar itself.
const VERSION: usize = 0;
const LEN: usize = 4;
const FREE_UNTIL: usize = 8;
const CURRENT_TIME: usize = 16;
const RUNNING_ID: usize = 24;
const MAX_CLIENTS: usize = 26;
const CLIENTS: usize = 4096;
const CLIENT_BYTES: usize = 128;
const SIZE: usize = CLIENTS + 2 * CLIENT_BYTES;
// union um_timetravel_schedshm_client
const CAPA: usize = 0;
const FLAGS: usize = 4;
const REQ_TIME: usize = 8;

const THIS_VERSION: u32 = 2;
const CAPA_TIME_SHARE: u32 = 1;
const FLAGS_REQ_RUN: u32 = 1;
/// The kernel's number.
const KERNEL: u16 = 1;
const KERNEL_AT: usize = CLIENTS + CLIENT_BYTES;

/// Not within the life of a host.
pub(super) const NEVER: u64 = u64::MAX;

/// What a message of the kernel means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It does not run any more, and waits for its next turn.
    Wait,
    /// It was answered, and goes on.
    Served,
    /// The process has ended.
    Gone,
}

pub(super) struct Clock {
    listener: UnixListener,
    socket: Option<UnixStream>,
    shared: Shared,
    memory: File,
    /// Of the kernel's start, in nanoseconds since 1970.
    time_of_day: u64,
    sequence: u32,
}

impl Clock {
    /// For the kernel that is going to connect.
    pub fn new(listener: UnixListener, time_of_day: u64) -> io::Result<Self> {
        let memory = File::from(memfd_create(c"clock", MFdFlags::MFD_CLOEXEC)?);
        memory.set_len(SIZE as u64)?;
        let shared = Shared::map(&memory, SIZE, 0)?;
        shared.at::<AtomicU32>(VERSION)?.store(THIS_VERSION, SeqCst);
        shared.at::<AtomicU32>(LEN)?.store(SIZE as u32, SeqCst);
        shared.at::<AtomicU16>(RUNNING_ID)?.store(KERNEL, SeqCst);
        shared.at::<AtomicU16>(MAX_CLIENTS)?.store(2, SeqCst);
        let capabilities = shared.at::<AtomicU32>(CLIENTS + CAPA)?;
        capabilities.store(CAPA_TIME_SHARE, SeqCst);
        Ok(Self {
            listener,
            socket: None,
            shared,
            memory,
            time_of_day,
            sequence: 0,
        })
    }

    /// Readable when [`Clock::serve`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Some(socket) => socket.as_fd(),
            None => self.listener.as_fd(),
        }
    }

    /// When the waiting kernel wants to run next, or [`NEVER`].
    pub fn requested(&self) -> io::Result<u64> {
        let flags: &AtomicU32 = self.shared.at(KERNEL_AT + FLAGS)?;
        let time: &AtomicU64 = self.shared.at(KERNEL_AT + REQ_TIME)?;
        let time = time.load(SeqCst);
        let wants = flags.load(SeqCst) & FLAGS_REQ_RUN != 0 && time < i64::MAX as u64;
        Ok(if wants { time } else { NEVER })
    }

    fn current(&self) -> io::Result<&AtomicU64> {
        self.shared.at(CURRENT_TIME)
    }

    /// The running kernel's time: exact while it waits for the answer of a device.
    pub fn now(&self) -> io::Result<u64> {
        Ok(self.current()?.load(SeqCst))
    }

    /// Sets the time at which an interrupt reaches the waiting kernel.
    pub fn set(&self, now: u64) -> io::Result<()> {
        self.current()?.store(now, SeqCst);
        Ok(())
    }

    /// Lets the waiting kernel run from `now` to just before `until`.
    pub fn run(&mut self, now: u64, until: u64) -> io::Result<()> {
        self.set(now)?;
        self.free_until()?.store(until, SeqCst);
        self.sequence += 1;
        self.send(message(RUN, self.sequence, now))
    }

    fn free_until(&self) -> io::Result<&AtomicU64> {
        self.shared.at(FREE_UNTIL)
    }

    /// Lets the running kernel run to just before `until` at the most. Only while it waits for the
    /// answer of a device.
    pub fn limit(&self, until: u64) -> io::Result<()> {
        self.free_until()?.fetch_min(until, SeqCst);
        Ok(())
    }

    /// Does what the kernel asks for.
    pub fn serve(&mut self) -> io::Result<Asked> {
        let Some(socket) = &mut self.socket else {
            self.socket = Some(self.listener.accept()?.0);
            return Ok(Asked::Served);
        };
        let mut asked = [0; 16];
        match socket.read_exact(&mut asked) {
            Ok(()) => {}
            Err(_) => return Ok(Asked::Gone),
        }
        let [operation, sequence, ..] = asked.as_chunks().0 else {
            return Ok(Asked::Gone);
        };
        let (operation, sequence) = (
            u32::from_ne_bytes(*operation),
            u32::from_ne_bytes(*sequence),
        );
        match operation {
            // In shared memory nobody waits for an answer.
            WAIT => return Ok(Asked::Wait),
            START => {
                let answer = message(ACK, sequence, KERNEL.into());
                // The kernel wants two descriptors, of which it closes the second.
                let fds = [self.memory.as_raw_fd(), stderr().as_raw_fd()];
                sys::send_with_fds(socket, &answer, &fds)?;
            }
            GET_TOD => {
                let now = self.time_of_day + self.now()?;
                self.send(message(ACK, sequence, now))?;
            }
            other => {
                let text = format!("its clock asked for operation {other}, which is not known");
                return Err(io::Error::other(text));
            }
        }
        Ok(Asked::Served)
    }

    fn send(&mut self, message: [u8; 16]) -> io::Result<()> {
        match &mut self.socket {
            Some(socket) => socket.write_all(&message),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// struct um_timetravel_msg
fn message(operation: u32, sequence: u32, time: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&operation.to_ne_bytes());
    bytes[4..8].copy_from_slice(&sequence.to_ne_bytes());
    bytes[8..].copy_from_slice(&time.to_ne_bytes());
    bytes
}
