// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card behind a vfio-user socket (the virtual card): a small client of the vfio-user
//! protocol 0.1.
//!
//! One request is out at a time. A server that is mute, dies or breaks the protocol gives an
//! error after a bounded time; after such an error the stream cannot be trusted any more and
//! every later request fails at once with the same reason.

use super::{Backend, CONFIG};
use crate::error::{Error, Result};
use memmap2::MmapRaw;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Commands, vfio-user specification, "Message Commands".
mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

const HEADER: usize = 16;
const REPLY: u32 = 1;
const TYPE_MASK: u32 = 0xf;
const ERROR: u32 = 1 << 5;
/// Longest reply that is read; the longest that this client asks for is far below.
const MAX_REPLY: usize = 64 << 10;
/// Bytes of one region access. The protocol allows more, no register needs it.
const MAX_ACCESS: usize = 4096;
/// Descriptors of one message that servers must take.
const MAX_FDS: usize = 16;
const MAX_REGIONS: u32 = 64;

const MSIX_IRQ_INDEX: u32 = 2;
const IRQ_SET_DATA_NONE: u32 = 1;
const IRQ_SET_DATA_EVENTFD: u32 = 1 << 2;
const IRQ_SET_ACTION_TRIGGER: u32 = 1 << 5;
const DMA_MAP_READ_WRITE: u32 = 0b11;
const PCI_DEVICE: u32 = 1 << 1;

/// How long a server may take for its first answer, and for any later one. A busy simulation
/// answers in microseconds to milliseconds.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A card served on a UNIX socket.
pub struct VfioUser {
    name: String,
    regions: Vec<u64>,
    stream: Mutex<Stream>,
}

impl VfioUser {
    /// Connects to the server at `path`.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self> {
        Self::connect_within(path.as_ref(), GREETING_TIMEOUT, REPLY_TIMEOUT)
    }

    fn connect_within(path: &Path, greeting: Duration, reply: Duration) -> Result<Self> {
        let name = format!("card at {}", path.display());
        let socket = UnixStream::connect(path).map_err(|e| {
            Error::Unavailable(match e.kind() {
                ErrorKind::NotFound => format!(
                    "there is no card at {}; start one with `midwire card serve --socket {0}`",
                    path.display()
                ),
                ErrorKind::ConnectionRefused => format!(
                    "nothing serves the socket {}; start a card with `midwire card serve --socket {0}`",
                    path.display()
                ),
                _ => format!("cannot connect to {}: {e}", path.display()),
            })
        })?;
        let mut stream = Stream {
            socket,
            next_id: 0,
            broken: None,
            timeout: greeting,
        };
        stream.set_timeout(greeting).map_err(Error::io(&name))?;
        stream.greet().map_err(|e| match e.kind() {
            ErrorKind::ResourceBusy => Error::InUse(name.clone()),
            ErrorKind::TimedOut => Error::Unavailable(format!(
                "{name} did not answer within {} ms; it hangs, or another program uses it",
                greeting.as_millis()
            )),
            ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                Error::Unavailable(format!(
                    "{name} closed the connection at once; another program may be using it"
                ))
            }
            _ => Error::Unavailable(format!("{name} refused the connection: {e}")),
        })?;
        let explain = |e| Error::io(format!("learn what {name} is"))(e);
        stream.set_timeout(reply).map_err(explain)?;
        let regions = stream.regions().map_err(explain)?;
        let card = Self {
            name,
            regions,
            stream: Mutex::new(stream),
        };
        card.enable()
            .map_err(Error::io(format!("enable {}", card.name)))?;
        Ok(card)
    }

    /// Lets the card answer in its BAR and write to memory, when it has a configuration space.
    fn enable(&self) -> io::Result<()> {
        if self.region_size(CONFIG) == 0 {
            return Ok(());
        }
        let mut command = [0; 2];
        self.read(CONFIG, 4, &mut command)?;
        let command = u16::from_le_bytes(command) | 0b110;
        self.write(CONFIG, 4, &command.to_le_bytes())
    }

    fn call(
        &self,
        command: u16,
        parts: &[&[u8]],
        fds: &[RawFd],
        reply: &mut [u8],
    ) -> io::Result<()> {
        self.stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .call(command, parts, fds, reply)
            .map(drop)
    }

    fn check(&self, region: u32, offset: u64, len: usize) -> io::Result<()> {
        let size = self.region_size(region);
        if len > MAX_ACCESS || offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(invalid(format!(
                "{len} bytes at {offset:#x} are outside region {region} of {size} bytes"
            )));
        }
        Ok(())
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text)
}

fn protocol(text: String) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("the server broke the vfio-user protocol: {text}"),
    )
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// Numbers in the protocol have the host's byte order, since both ends are on one host.
fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

struct Stream {
    socket: UnixStream,
    next_id: u16,
    broken: Option<String>,
    timeout: Duration,
}

impl Stream {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.timeout = timeout;
        self.socket.set_read_timeout(Some(timeout))?;
        self.socket.set_write_timeout(Some(timeout))
    }

    fn greet(&mut self) -> io::Result<()> {
        let mut ours = [0u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat();
        ours.extend_from_slice(
            b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":4096}}\0",
        );
        let mut theirs = vec![0; MAX_REPLY];
        let len = self.call(command::VERSION, &[&ours], &[], &mut theirs)?;
        if len < 4 {
            return Err(protocol("its version is cut off".into()));
        }
        let major = u16::from_ne_bytes([theirs[0], theirs[1]]);
        if major != 0 {
            return Err(protocol(format!("its major version is {major}, not 0")));
        }
        Ok(())
    }

    /// Sizes of the device's regions.
    fn regions(&mut self) -> io::Result<Vec<u64>> {
        let mut info = [0; 16];
        let ask = words(&[16, 0, 0, 0]);
        self.call_exact(command::DEVICE_GET_INFO, &ask, &mut info)?;
        let (flags, count) = (u32_at(&info, 4), u32_at(&info, 8));
        if flags & PCI_DEVICE == 0 {
            return Err(io::Error::other("it is no PCI device"));
        }
        if count > MAX_REGIONS {
            return Err(protocol(format!("it claims {count} regions")));
        }
        (0..count)
            .map(|index| {
                let mut info = [0; 32];
                let ask = words(&[32, 0, index, 0, 0, 0, 0, 0]);
                self.call_exact(command::DEVICE_GET_REGION_INFO, &ask, &mut info)?;
                Ok(u64_at(&info, 16))
            })
            .collect()
    }

    fn call_exact(&mut self, command: u16, ask: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let len = self.call(command, &[ask], &[], reply)?;
        if len < reply.len() {
            return Err(protocol(format!(
                "a reply of {len} bytes to command {command}"
            )));
        }
        Ok(())
    }

    /// Sends a request and reads its reply into `reply`; returns the reply's length.
    fn call(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        fds: &[RawFd],
        reply: &mut [u8],
    ) -> io::Result<usize> {
        if let Some(why) = &self.broken {
            return Err(io::Error::new(ErrorKind::BrokenPipe, why.clone()));
        }
        match self.exchange(command, parts, fds, reply) {
            Ok(Ok(len)) => Ok(len),
            Ok(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Err(e) => {
                let e = match e.kind() {
                    // What a socket timeout reads as.
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => io::Error::new(
                        ErrorKind::TimedOut,
                        format!("no answer within {} ms", self.timeout.as_millis()),
                    ),
                    ErrorKind::UnexpectedEof => io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the server closed the connection",
                    ),
                    _ => e,
                };
                self.broken = Some(e.to_string());
                Err(e)
            }
        }
    }

    /// The outer error leaves the stream in an unknown place; the inner one is the server's
    /// answer.
    fn exchange(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        fds: &[RawFd],
        reply: &mut [u8],
    ) -> io::Result<std::result::Result<usize, i32>> {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let mut message = Vec::with_capacity(HEADER + body);
        message.extend_from_slice(&id.to_ne_bytes());
        message.extend_from_slice(&command.to_ne_bytes());
        message.extend_from_slice(&words(&[(HEADER + body) as u32, 0, 0]));
        for part in parts {
            message.extend_from_slice(part);
        }
        // Descriptors go with the first byte; what a full socket did not take follows alone.
        let sent = if fds.is_empty() {
            self.socket.write_vectored(&[IoSlice::new(&message)])?
        } else {
            self.socket
                .send_with_fds(&[&message[..]], fds)
                .map_err(io::Error::from)?
        };
        self.socket.write_all(&message[sent..])?;

        let deadline = Instant::now() + self.timeout;
        let mut header = [0; HEADER];
        self.read_until(&mut header, deadline)?;
        let size = u32_at(&header, 4) as usize;
        let flags = u32_at(&header, 8);
        let found = (
            u16::from_ne_bytes([header[0], header[1]]),
            u16::from_ne_bytes([header[2], header[3]]),
        );
        if flags & TYPE_MASK != REPLY || found != (id, command) {
            return Err(protocol(format!(
                "message {found:?} with flags {flags:#x} where the reply to {:?} was due",
                (id, command)
            )));
        }
        if !(HEADER..=HEADER + MAX_REPLY).contains(&size) {
            return Err(protocol(format!("a reply that claims {size} bytes")));
        }
        let len = size - HEADER;
        let kept = len.min(reply.len());
        self.read_until(&mut reply[..kept], deadline)?;
        let mut rest = [0; 256];
        let mut left = len - kept;
        while left > 0 {
            let n = left.min(rest.len());
            self.read_until(&mut rest[..n], deadline)?;
            left -= n;
        }
        if flags & ERROR != 0 {
            let errno = u32_at(&header, 12);
            return Ok(Err(match i32::try_from(errno) {
                Ok(1..=4095) => errno as i32,
                _ => libc::EIO,
            }));
        }
        Ok(Ok(len))
    }

    /// Like `read_exact`, but a server that trickles bytes cannot stretch the time.
    fn read_until(&mut self, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buf.is_empty() {
            match self.socket.read(buf) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => buf = &mut buf[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if !buf.is_empty() && Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

impl Backend for VfioUser {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn region_size(&self, region: u32) -> u64 {
        self.regions.get(region as usize).copied().unwrap_or(0)
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(region, offset, buf.len())?;
        let ask = access(region, offset, buf.len());
        let mut reply = [0; 16 + MAX_ACCESS];
        let reply = &mut reply[..16 + buf.len()];
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.call_exact(command::REGION_READ, &ask, reply)?;
        buf.copy_from_slice(&reply[16..]);
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(region, offset, buf.len())?;
        let ask = access(region, offset, buf.len());
        self.call(command::REGION_WRITE, &[&ask, buf], &[], &mut [])
    }

    /// A register of a simulated card acts when it is written, which shared memory cannot do.
    fn map_region(&self, _region: u32) -> io::Result<Option<MmapRaw>> {
        Ok(None)
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        _va: *mut u8,
        len: usize,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()> {
        let mut ask = words(&[32, DMA_MAP_READ_WRITE]);
        for value in [offset, iova, len as u64] {
            ask.extend_from_slice(&value.to_ne_bytes());
        }
        self.call(command::DMA_MAP, &[&ask], &[fd.as_raw_fd()], &mut [])
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        let mut ask = words(&[24, 0]);
        for value in [iova, len as u64] {
            ask.extend_from_slice(&value.to_ne_bytes());
        }
        self.call(command::DMA_UNMAP, &[&ask], &[], &mut [])
    }

    fn set_msix(&self, events: &[EventFd]) -> io::Result<()> {
        if events.len() > MAX_FDS {
            return Err(invalid(format!("{} interrupt vectors", events.len())));
        }
        let fds: Vec<RawFd> = events.iter().map(AsRawFd::as_raw_fd).collect();
        let data = match fds.len() {
            0 => IRQ_SET_DATA_NONE,
            _ => IRQ_SET_DATA_EVENTFD,
        };
        let ask = words(&[
            20,
            data | IRQ_SET_ACTION_TRIGGER,
            MSIX_IRQ_INDEX,
            0,
            fds.len() as u32,
        ]);
        self.call(command::DEVICE_SET_IRQS, &[&ask], &fds, &mut [])
    }

    fn reset(&self) -> io::Result<()> {
        self.call(command::DEVICE_RESET, &[], &[], &mut [])?;
        self.enable()
    }
}

fn access(region: u32, offset: u64, len: usize) -> Vec<u8> {
    let mut ask = Vec::with_capacity(16);
    ask.extend_from_slice(&offset.to_ne_bytes());
    ask.extend_from_slice(&words(&[region, len as u32]));
    ask
}

#[cfg(test)]
#[path = "vfio_user_test.rs"]
mod tests;
