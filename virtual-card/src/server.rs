// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The function on a UNIX socket, by the vfio-user protocol 0.1 (as QEMU and libvfio-user
//! speak it), to one client at a time.
//!
//! All comes from one thread that never waits for a client: a client that is silent, slow or
//! hostile can hurt nobody but itself. What breaks the protocol closes the connection, and a
//! connection that closes resets the function, as the kernel does when a device is given back.

use crate::error::{Error, Result};
use crate::function::{BAR0, BAR4, CONFIG, HostBus, VECTORS};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use std::fs;
use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IRQ_INFO_EVENTFD,
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_TYPE_MASK, VFIO_IRQ_SET_DATA_BOOL,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_IRQ_SET_DATA_TYPE_MASK,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE,
};

/// Commands (vfio-user specification, "Message Commands").
mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

const HEADER: usize = 16;
const TYPE_MASK: u32 = 0xf;
const TYPE_COMMAND: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Bytes of a region access.
const MAX_DATA: usize = 4096;
/// Longest message: a region write, or a client's version with its capabilities.
const MAX_MESSAGE: usize = HEADER + 16 + MAX_DATA;
/// Descriptors of one message, and those that may wait for their message.
const MAX_FDS: usize = 8;
/// How long a client may take to make room for a reply.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one that is refused has to say who it is, and how many of them are heard.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REFUSED: usize = 8;

/// A socket that serves the function. Ends with its drop.
pub(crate) struct Server {
    path: PathBuf,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(path: PathBuf, bus: HostBus) -> Result<Self> {
        let listener = bind(&path)?;
        let what = || format!("serve {}", path.display());
        let stop = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Error::errno(what()))?;
        let stop = Arc::new(stop);
        listener.set_nonblocking(true).map_err(Error::io(what()))?;
        let mut server = Self {
            path: path.clone(),
            stop: stop.clone(),
            thread: None,
        };
        let thread = thread::Builder::new()
            .name("vfio-user".into())
            .spawn(move || run(&listener, &stop, &bus));
        server.thread = Some(thread.map_err(Error::io(what()))?);
        Ok(server)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A counter that is full wakes as well.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; there is nothing to undo.
            let _ = thread.join();
        }
        // Somebody may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens on a path. A socket that a dead server has left there is replaced.
fn bind(path: &Path) -> Result<UnixListener> {
    let what = || format!("listen on {}", path.display());
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io(what())(e)),
        Ok(found) if !found.file_type().is_socket() => return Err(Error::NotASocket(path.into())),
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(Error::io(what()))?;
            }
            _ => return Err(Error::SocketInUse(path.into())),
        },
    }
    UnixListener::bind(path).map_err(Error::io(what()))
}

/// A connection that is refused once it has said what its first message is.
struct Refused {
    stream: UnixStream,
    until: Instant,
}

fn run(listener: &UnixListener, stop: &EventFd, bus: &HostBus) {
    let mut client: Option<Client> = None;
    let mut refused: Vec<Refused> = Vec::new();
    loop {
        let mut fds = vec![
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        ];
        let others = client.iter().map(|c| c.stream.as_fd());
        let others = others.chain(refused.iter().map(|r| r.stream.as_fd()));
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let timeout = match refused.is_empty() {
            true => PollTimeout::NONE,
            false => PollTimeout::from(100u16),
        };
        // An interrupted wait looks again.
        let _ = poll(&mut fds, timeout);
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        drop(fds);
        if ready[0] {
            break;
        }
        if let Some(current) = &mut client
            && ready[2]
            && current.serve(bus).is_err()
        {
            client = None;
            release(bus);
        }
        refused.retain(|r| r.until > Instant::now() && !refuse(&r.stream));
        if ready[1]
            && let Ok((stream, _)) = listener.accept()
        {
            match &client {
                None => client = Client::new(stream).ok(),
                Some(_) if refused.len() < MAX_REFUSED && stream.set_nonblocking(true).is_ok() => {
                    let until = Instant::now() + REFUSAL_TIMEOUT;
                    refused.push(Refused { stream, until });
                }
                // Closed at once.
                Some(_) => {}
            }
        }
    }
    if client.is_some() {
        release(bus);
    }
}

/// What is done with the function when its client is gone.
fn release(bus: &HostBus) {
    // Nothing to join cannot fail.
    let _ = bus.set_interrupt(None);
    bus.dma_unmap_all();
    bus.reset();
}

/// Answers the greeting of a client with "busy", as soon as it is there; false when it is not.
fn refuse(mut stream: &UnixStream) -> bool {
    let mut message = [0; MAX_MESSAGE];
    match stream.read(&mut message) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
        Ok(len) if len >= HEADER => {
            let busy = header(&message, 0, Some(Errno::EBUSY));
            // Who does not hear it will see the connection closed.
            let _ = stream.write_all(&busy);
        }
        _ => {}
    }
    true
}

/// The header of a reply to the request that `message` begins with.
fn header(message: &[u8], body: usize, error: Option<Errno>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&message[..4]); // message id, command
    let flags = TYPE_REPLY | error.map_or(0, |_| ERROR);
    let error = error.map_or(0, |e| e as u32);
    for (to, value) in header[4..]
        .chunks_mut(4)
        .zip([(HEADER + body) as u32, flags, error])
    {
        to.copy_from_slice(&value.to_ne_bytes());
    }
    header
}

/// Numbers of a message, in the host's byte order. What is cut off reads as an error.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Result<u32, Errno> {
        let (value, rest) = self.0.split_first_chunk().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*value))
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        let (value, rest) = self.0.split_first_chunk().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*value))
    }
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn errno(e: &io::Error) -> Errno {
    match e.kind() {
        ErrorKind::AlreadyExists => Errno::EEXIST,
        ErrorKind::OutOfMemory => Errno::ENOMEM,
        _ => e.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw),
    }
}

/// The client that has the function.
struct Client {
    stream: UnixStream,
    /// What of the next message is there, and the descriptors that came along.
    message: Vec<u8>,
    fds: Vec<OwnedFd>,
    greeted: bool,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self {
            stream,
            message: Vec::new(),
            fds: Vec::new(),
            greeted: false,
        })
    }

    /// Takes what there is and answers each message that is whole. An error ends the
    /// connection.
    fn serve(&mut self, bus: &HostBus) -> io::Result<()> {
        let gone = || io::Error::from(ErrorKind::ConnectionAborted);
        // No more than the message, so that descriptors stay with theirs.
        let wanted = match self.size()? {
            None => HEADER,
            Some(size) => size,
        };
        let mut buffer = [0; MAX_MESSAGE];
        let len = self.receive(&mut buffer[..wanted - self.message.len()])?;
        if len == 0 {
            return Err(gone());
        }
        self.message.extend_from_slice(&buffer[..len]);
        if self.size()? != Some(self.message.len()) {
            return Ok(());
        }
        let message = std::mem::take(&mut self.message);
        let fds = std::mem::take(&mut self.fds);
        let [number, flags] = [2, 8].map(|at| {
            let mut fields = Fields(&message[at..]);
            fields.u32().unwrap_or(0)
        });
        let number = number.to_ne_bytes();
        let number = u16::from_ne_bytes([number[0], number[1]]);
        if flags & TYPE_MASK != TYPE_COMMAND {
            return Err(gone());
        }
        let answer = match number {
            command::VERSION if !self.greeted => {
                let answer = version(&message[HEADER..]);
                self.greeted = answer.is_ok();
                answer
            }
            _ if self.greeted => answer(bus, number, &message[HEADER..], fds),
            _ => return Err(gone()),
        };
        if flags & NO_REPLY != 0 {
            return Ok(());
        }
        let reply = match answer {
            Ok(body) => [header(&message, body.len(), None).as_slice(), &body].concat(),
            Err(error) => header(&message, 0, Some(error)).to_vec(),
        };
        self.stream.write_all(&reply)
    }

    /// Size of the message that is coming, when its header is there.
    fn size(&self) -> io::Result<Option<usize>> {
        if self.message.len() < HEADER {
            return Ok(None);
        }
        let size = Fields(&self.message[4..]).u32().unwrap_or(0) as usize;
        match (HEADER..=MAX_MESSAGE).contains(&size) {
            true => Ok(Some(size)),
            false => Err(io::Error::new(
                ErrorKind::InvalidData,
                "a message of no such size",
            )),
        }
    }

    /// Reads once, without waiting.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut control = cmsg_space!([RawFd; MAX_FDS]);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.stream.as_raw_fd();
        let received = recvmsg::<UnixAddr>(fd, &mut parts, Some(&mut control), flags)?;
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = message {
                // SAFETY: the kernel has just made these descriptors for us alone.
                let fds = fds
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
                self.fds.extend(fds);
            }
        }
        if self.fds.len() > MAX_FDS || received.flags.contains(MsgFlags::MSG_CTRUNC) {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "too many descriptors",
            ));
        }
        Ok(received.bytes)
    }
}

fn version(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (version, _) = body.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
    let major = u16::from_ne_bytes([version[0], version[1]]);
    if major != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let capabilities = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{MAX_FDS},\"max_data_xfer_size\":{MAX_DATA}}}}}\0"
    );
    Ok([
        &0u16.to_ne_bytes(),
        &1u16.to_ne_bytes(),
        capabilities.as_bytes(),
    ]
    .concat())
}

fn answer(
    bus: &HostBus,
    number: u16,
    body: &[u8],
    mut fds: Vec<OwnedFd>,
) -> Result<Vec<u8>, Errno> {
    let mut fields = Fields(body);
    match number {
        command::DEVICE_GET_INFO => {
            let flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
            Ok(words(&[16, flags, VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS]))
        }
        command::DEVICE_GET_REGION_INFO => {
            let [_argsz, _flags, index] = [fields.u32()?, fields.u32()?, fields.u32()?];
            if index >= VFIO_PCI_NUM_REGIONS {
                return Err(Errno::EINVAL);
            }
            let flags = match index {
                BAR0 | BAR4 | CONFIG => VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
                _ => 0,
            };
            let mut info = words(&[32, flags, index, 0]);
            info.extend_from_slice(&bus.region_size(index).to_ne_bytes());
            info.extend_from_slice(&0u64.to_ne_bytes());
            Ok(info)
        }
        command::DEVICE_GET_IRQ_INFO => {
            let [_argsz, _flags, index] = [fields.u32()?, fields.u32()?, fields.u32()?];
            match index {
                VFIO_PCI_MSIX_IRQ_INDEX => {
                    Ok(words(&[16, VFIO_IRQ_INFO_EVENTFD, index, VECTORS as u32]))
                }
                _ if index < VFIO_PCI_NUM_IRQS => Ok(words(&[16, 0, index, 0])),
                _ => Err(Errno::EINVAL),
            }
        }
        command::DEVICE_SET_IRQS => set_irqs(bus, fields, fds).map(|()| Vec::new()),
        command::DMA_MAP => {
            let [_argsz, flags] = [fields.u32()?, fields.u32()?];
            let [offset, iova, size] = [fields.u64()?, fields.u64()?, fields.u64()?];
            // Memory without a descriptor would take messages to write to; nobody needs it.
            if let Some(fd) = fds.pop() {
                let write = flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
                bus.dma_map_as(iova, size, fd, offset, write)
                    .map_err(|e| errno(&e))?;
            }
            Ok(Vec::new())
        }
        command::DMA_UNMAP => {
            let [argsz, flags] = [fields.u32()?, fields.u32()?];
            let [iova, size] = [fields.u64()?, fields.u64()?];
            match (iova, size) {
                // What VFIO_DMA_UNMAP_FLAG_ALL comes with.
                (0, 0) => bus.dma_unmap_all(),
                _ => bus.dma_unmap(iova, size).map_err(|e| errno(&e))?,
            }
            let mut reply = words(&[argsz, flags]);
            reply.extend_from_slice(&iova.to_ne_bytes());
            reply.extend_from_slice(&size.to_ne_bytes());
            Ok(reply)
        }
        command::REGION_READ => {
            let offset = fields.u64()?;
            let [region, count] = [fields.u32()?, fields.u32()?];
            let len = count as usize;
            if len > MAX_DATA {
                return Err(Errno::E2BIG);
            }
            let mut reply = body[..16].to_vec();
            reply.resize(16 + len, 0);
            bus.read(region, offset, &mut reply[16..]);
            Ok(reply)
        }
        command::REGION_WRITE => {
            let offset = fields.u64()?;
            let [region, count] = [fields.u32()?, fields.u32()?];
            let data = fields.0.get(..count as usize).ok_or(Errno::EINVAL)?;
            bus.write(region, offset, data);
            Ok(body[..16].to_vec())
        }
        command::DEVICE_RESET => {
            bus.reset();
            Ok(Vec::new())
        }
        _ => Err(Errno::ENOTSUP),
    }
}

fn set_irqs(bus: &HostBus, mut fields: Fields<'_>, mut fds: Vec<OwnedFd>) -> Result<(), Errno> {
    let [_argsz, flags, index] = [fields.u32()?, fields.u32()?, fields.u32()?];
    let [start, count] = [fields.u32()?, fields.u32()?];
    let vectors = match index {
        VFIO_PCI_MSIX_IRQ_INDEX => VECTORS as u32,
        _ if index < VFIO_PCI_NUM_IRQS => 0,
        _ => return Err(Errno::EINVAL),
    };
    if start.checked_add(count).is_none_or(|end| end > vectors) {
        return Err(Errno::EINVAL);
    }
    if flags & VFIO_IRQ_SET_ACTION_TYPE_MASK != VFIO_IRQ_SET_ACTION_TRIGGER {
        // Masking belongs to INTx alone.
        return Err(Errno::EINVAL);
    }
    match flags & VFIO_IRQ_SET_DATA_TYPE_MASK {
        VFIO_IRQ_SET_DATA_EVENTFD if fds.len() == count as usize => match fds.pop() {
            Some(event) => bus.set_interrupt(Some(event)).map_err(|e| errno(&e)),
            None => Ok(()),
        },
        // As many as there are vectors, or none: those get nothing.
        VFIO_IRQ_SET_DATA_EVENTFD if fds.is_empty() => {
            bus.set_interrupt(None).map_err(|e| errno(&e))
        }
        VFIO_IRQ_SET_DATA_NONE if count == 0 => bus.set_interrupt(None).map_err(|e| errno(&e)),
        VFIO_IRQ_SET_DATA_NONE => {
            bus.trigger_interrupt();
            Ok(())
        }
        VFIO_IRQ_SET_DATA_BOOL => {
            let data = fields.0.get(..count as usize).ok_or(Errno::EINVAL)?;
            data.iter()
                .filter(|on| **on != 0)
                .for_each(|_| bus.trigger_interrupt());
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}
