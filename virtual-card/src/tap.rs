// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TAP at a port, in wall time. Two threads carry its frames, so that system calls and the
//! kernel's own work on a frame do not hold up the simulation.

use crate::error::{Error, Result};
use crate::mac::{MAX_FRAME, MIN_FRAME};
use crate::stats::PortCounters;
use crossbeam_channel::Receiver;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

const DEVICE: &str = "/dev/net/tun";

/// Frames that may wait for the core, the rest waits in the kernel; and those that may wait
/// for the TAP.
pub(crate) const BACKLOG: usize = 8192;
/// How long a frame is offered to a TAP that has no room, in milliseconds.
const PATIENCE_MS: u16 = 20;

nix::ioctl_write_ptr_bad!(tun_set_interface, libc::TUNSETIFF, libc::ifreq);

/// Opens the TAP `name`, or makes it.
pub(crate) fn open(name: &str) -> Result<OwnedFd> {
    let what = || format!("open the TAP {name}");
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || !name.is_ascii() {
        return Err(Error::Config(format!(
            "`{name}` is no name for an interface"
        )));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
        .map_err(Error::io(what()))?;
    // SAFETY: the request lives across the call, which reads and writes nothing but it.
    unsafe { tun_set_interface(device.as_raw_fd(), &raw const request) }
        .map_err(Error::errno(what()))?;
    Ok(device.into())
}

/// The threads of a TAP. They end when it is dropped.
pub(crate) struct Tap {
    stop: Arc<EventFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Tap {
    /// Carries frames from the TAP to `input` and from `output` to the TAP. `waiting` counts
    /// the frames that were given to `input`; who takes them counts it down.
    pub fn start(
        fd: OwnedFd,
        label: &str,
        waiting: Arc<AtomicUsize>,
        counters: Arc<PortCounters>,
        input: impl Fn(Vec<u8>) -> bool + Send + 'static,
        output: Receiver<Vec<u8>>,
    ) -> Result<Self> {
        let what = || format!("use the TAP at port {label}");
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(Error::errno(what()))?;
        let stop = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Error::errno(what()))?;
        let stop = Arc::new(stop);
        let reader = File::from(fd);
        let writer = reader.try_clone().map_err(Error::io(what()))?;
        let mut tap = Self {
            stop: stop.clone(),
            threads: Vec::new(),
        };
        let read = thread::Builder::new()
            .name(format!("tap {label} in"))
            .spawn(move || read_frames(&reader, &stop, &waiting, input));
        tap.threads.push(read.map_err(Error::io(what()))?);
        let write = thread::Builder::new()
            .name(format!("tap {label} out"))
            .spawn(move || {
                output
                    .iter()
                    .for_each(|frame| write_frame(&writer, &frame, &counters))
            });
        tap.threads.push(write.map_err(Error::io(what()))?);
        Ok(tap)
    }
}

impl Drop for Tap {
    /// The writer ends with the last sender of its channel, which its owner has dropped.
    fn drop(&mut self) {
        // A counter that is full wakes as well.
        let _ = self.stop.write(1);
        for thread in self.threads.drain(..) {
            // A panic has been printed; there is nothing to undo.
            let _ = thread.join();
        }
    }
}

fn read_frames(
    mut tap: &File,
    stop: &EventFd,
    waiting: &AtomicUsize,
    input: impl Fn(Vec<u8>) -> bool,
) {
    let mut buffer = vec![0; MAX_FRAME];
    loop {
        if waiting.load(Ordering::Relaxed) >= BACKLOG {
            if wait(&[(stop.as_fd(), PollFlags::POLLIN)], 1) {
                return;
            }
            continue;
        }
        match tap.read(&mut buffer) {
            Ok(len) => {
                // What a MAC does to a short frame.
                buffer[len..len.max(MIN_FRAME)].fill(0);
                waiting.fetch_add(1, Ordering::Relaxed);
                if !input(buffer[..len.max(MIN_FRAME)].to_vec()) {
                    return;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let mut fds = [
                    PollFd::new(tap.as_fd(), PollFlags::POLLIN),
                    PollFd::new(stop.as_fd(), PollFlags::POLLIN),
                ];
                // An interrupted wait looks again.
                let _ = poll(&mut fds, PollTimeout::NONE);
                if fds[1].any() == Some(true) {
                    return;
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The interface is down or going: EIO, EBADFD. It may come back.
            Err(_) => {
                if wait(&[(stop.as_fd(), PollFlags::POLLIN)], 50) {
                    return;
                }
            }
        }
    }
}

/// Waits until one of the descriptors is ready; false when the time is over.
fn wait(fds: &[(BorrowedFd<'_>, PollFlags)], ms: u16) -> bool {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|(fd, flags)| PollFd::new(*fd, *flags))
        .collect();
    matches!(poll(&mut fds, ms), Ok(1..))
}

fn write_frame(mut tap: &File, frame: &[u8], counters: &PortCounters) {
    let mut patience = PATIENCE_MS;
    loop {
        let error = match tap.write(frame) {
            Ok(_) => return,
            Err(e) => e,
        };
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EINTR) => {}
            Some(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) if patience > 0 => {
                patience -= 1;
                // ENOBUFS does not show in the descriptor's state, so a ready one waits as well.
                if wait(&[(tap.as_fd(), PollFlags::POLLOUT)], 1) {
                    thread::sleep(std::time::Duration::from_micros(200));
                }
            }
            _ => {
                counters.lost_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}
