// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TAPs at ports, in wall time. A thread carries their frames, so that system calls and the
//! kernel's own work on a frame do not hold up the simulation.

use crate::error::{Error, Result};
use crate::mac::{MAX_FRAME, MIN_FRAME};
use crate::stats::PortCounters;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const DEVICE: &str = "/dev/net/tun";

/// Frames that may wait for the core, the rest waits in the kernel; and those that may wait
/// for the TAP.
pub(crate) const BACKLOG: usize = 8192;
/// Frames that are read from a TAP before the others have their turn.
const TURN: usize = 32;
/// How often a frame is offered to a TAP that has no room, and how long after each time.
const OFFERS: u32 = 20;
const OFFER_AGAIN: Duration = Duration::from_millis(1);
/// When to look again for room in the core's backlog, and for an interface that is down.
const BACKLOG_AGAIN: Duration = Duration::from_millis(1);
const DOWN_AGAIN: Duration = Duration::from_millis(50);

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

/// A TAP and what its frames go by.
pub(crate) struct Tap {
    pub device: File,
    /// Takes a frame that came from the interface; false when nobody does any more.
    pub input: Box<dyn Fn(Vec<u8>) -> bool + Send>,
    /// Counts the frames that were given to `input`; who takes them counts it down.
    pub waiting: Arc<AtomicUsize>,
    pub counters: Arc<PortCounters>,
}

/// Frames on their way to the TAPs.
#[derive(Default)]
struct Outbox {
    frames: Mutex<[Vec<Vec<u8>>; 2]>,
    /// The carrier has found nothing to do and waits.
    asleep: AtomicBool,
}

/// The sending end of the outbox.
#[derive(Clone)]
pub(crate) struct Sender {
    outbox: Arc<Outbox>,
    wake: Arc<EventFd>,
}

impl Sender {
    /// Sends the frames to the TAP at `port`; returns how many found no room and are lost.
    pub fn send(&self, port: usize, frames: &mut Vec<Vec<u8>>) -> usize {
        let mut outbox = lock(&self.outbox.frames);
        let room = BACKLOG.saturating_sub(outbox[port].len());
        let lost = frames.len().saturating_sub(room);
        outbox[port].extend(frames.drain(..).take(room));
        drop(outbox);
        // The carrier says that it sleeps before it looks for the last time: one of the two
        // sees what the other has done.
        fence(Ordering::SeqCst);
        if self.outbox.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
        lost
    }

    fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = self.wake.write(1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that carries frames from and to the TAPs. It ends when this is dropped.
///
/// It is one for all of them: under load it finds something to do wherever it looks, so that
/// the simulation hardly ever has to wake it.
pub(crate) struct Carrier {
    stop: Arc<AtomicBool>,
    sender: Sender,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Begins with no TAP at the ports but these.
    pub fn start(taps: [Option<Tap>; 2]) -> Result<Self> {
        const WHAT: &str = "carry frames of TAPs";
        for tap in taps.iter().flatten() {
            fcntl(&tap.device, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(Error::errno(WHAT))?;
        }
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Error::errno(WHAT))?;
        let sender = Sender {
            outbox: Arc::default(),
            wake: Arc::new(wake),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (outbox, stopped) = (sender.clone(), stop.clone());
        let thread = thread::Builder::new()
            .name("taps".into())
            .spawn(move || carry(&taps, &outbox, &stopped))
            .map_err(Error::io(WHAT))?;
        Ok(Self {
            stop,
            sender,
            thread: Some(thread),
        })
    }

    /// For who sends frames to the TAPs.
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }
}

impl Drop for Carrier {
    /// What was sent before is still carried.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.sender.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; there is nothing to undo.
            let _ = thread.join();
        }
    }
}

/// Why a TAP has no frame for now, and when to look again but for an event of its own.
#[derive(Clone, Copy)]
enum Pause {
    Empty,
    Until(Instant),
}

fn carry(taps: &[Option<Tap>; 2], sender: &Sender, stop: &AtomicBool) {
    let mut buffer = vec![0; MAX_FRAME];
    let mut pauses = [Pause::Empty; 2];
    let mut out: [Vec<Vec<u8>>; 2] = Default::default();
    loop {
        // In this order nothing that was sent before the end is left behind.
        let stopped = stop.load(Ordering::SeqCst);
        std::mem::swap(&mut *lock(&sender.outbox.frames), &mut out);
        let mut moved = out.iter().any(|frames| !frames.is_empty());
        for (tap, frames) in taps.iter().zip(&mut out) {
            for frame in frames.drain(..) {
                if let Some(tap) = tap {
                    write_frame(tap, &frame);
                }
            }
        }
        if stopped {
            return;
        }
        for (tap, pause) in taps.iter().zip(&mut pauses) {
            let Some(tap) = tap else { continue };
            if matches!(pause, Pause::Until(then) if *then > Instant::now()) {
                continue;
            }
            match read_frames(tap, &mut buffer) {
                None => moved = true,
                Some(why) => *pause = why,
            }
        }
        if moved {
            sender.outbox.asleep.store(false, Ordering::Relaxed);
        } else if !sender.outbox.asleep.swap(true, Ordering::SeqCst) {
            // One more look at all of it now that everybody knows.
            fence(Ordering::SeqCst);
        } else {
            sleep(taps, &pauses, sender);
            sender.outbox.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// Waits until there may be something to do.
fn sleep(taps: &[Option<Tap>; 2], pauses: &[Pause; 2], sender: &Sender) {
    let mut fds = vec![PollFd::new(sender.wake.as_fd(), PollFlags::POLLIN)];
    let mut timeout: Option<Duration> = None;
    for (tap, pause) in taps.iter().zip(pauses) {
        match (tap, pause) {
            (None, _) => {}
            (Some(tap), Pause::Empty) => {
                fds.push(PollFd::new(tap.device.as_fd(), PollFlags::POLLIN));
            }
            (_, Pause::Until(then)) => {
                let left = then.saturating_duration_since(Instant::now());
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
    }
    let timeout = match timeout {
        None => PollTimeout::NONE,
        // Rounded up, so that the time is over afterwards.
        Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
    };
    // An interrupted wait looks again.
    let _ = poll(&mut fds, timeout);
    // Empty when something else has woken it.
    let _ = sender.wake.read();
}

/// Reads a turn's frames; or says why there are no more for now.
fn read_frames(tap: &Tap, buffer: &mut [u8]) -> Option<Pause> {
    let again = |after| Some(Pause::Until(Instant::now() + after));
    for _ in 0..TURN {
        if tap.waiting.load(Ordering::Relaxed) >= BACKLOG {
            return again(BACKLOG_AGAIN);
        }
        match (&tap.device).read(buffer) {
            Ok(len) => {
                // What a MAC does to a short frame.
                buffer[len..len.max(MIN_FRAME)].fill(0);
                tap.waiting.fetch_add(1, Ordering::Relaxed);
                if !(tap.input)(buffer[..len.max(MIN_FRAME)].to_vec()) {
                    // The simulation has gone; this thread goes next.
                    return again(DOWN_AGAIN);
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(Pause::Empty),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The interface is down or going: EIO, EBADFD. It may come back.
            Err(_) => return again(DOWN_AGAIN),
        }
    }
    None
}

fn write_frame(tap: &Tap, frame: &[u8]) {
    for _ in 0..=OFFERS {
        let error = match (&tap.device).write(frame) {
            Ok(_) => return,
            Err(e) => e,
        };
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EINTR) => {}
            Some(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => thread::sleep(OFFER_AGAIN),
            _ => break,
        }
    }
    tap.counters.lost_out.fetch_add(1, Ordering::Relaxed);
}
