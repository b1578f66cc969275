// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio device with a queue to the driver and one from it, for the vhost-user driver of
//! User-Mode Linux in time travel: notifications are messages, and each is answered.
//!
//! Split queues, as of Virtio 1.2, 2.7; messages as of QEMU's docs/interop/vhost-user.rst.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU8, fence};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::sys::{self, Shared};

/// The queue to the driver, and the one from it.
pub(super) const RECEIVE: usize = 0;
pub(super) const TRANSMIT: usize = 1;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const VRING_KICK: u32 = 35;
/// From the device to the driver.
const BACKEND_VRING_CALL: u32 = 4;

const VERSION_1: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
const HEADER: usize = 12;
/// Longer messages are none of ours.
const MAX_PAYLOAD: usize = 512;

/// VIRTIO_F_VERSION_1, VIRTIO_F_EVENT_IDX, VHOST_USER_F_PROTOCOL_FEATURES
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 30;
/// REPLY_ACK, BACKEND_REQ, CONFIG, INBAND_NOTIFICATIONS
const PROTOCOL_FEATURES: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14;

const DESCRIPTOR_BYTES: u64 = 16;
const DESCRIPTOR_NEXT: u16 = 1;

/// What a message of the driver means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Something that [`Device::reply`] answers.
    Setup,
    /// There are buffers in this queue.
    Kick(usize),
    /// The process has ended.
    Gone,
}

/// What the kernel says of its memory: where a part of it is, in its own addresses.
struct Region {
    address: u64,
    size: u64,
    shared: Shared,
}

#[derive(Default)]
struct Memory(Vec<Region>);

impl Memory {
    fn region(&self, address: u64) -> io::Result<(&Shared, usize)> {
        let inside = |r: &&Region| (r.address..r.address + r.size).contains(&address);
        let region = self.0.iter().find(inside);
        let region = region.ok_or_else(|| io::Error::other("an address outside of its memory"))?;
        Ok((&region.shared, (address - region.address) as usize))
    }

    fn at<T: sys::Atomic>(&self, address: u64) -> io::Result<&T> {
        let (shared, offset) = self.region(address)?;
        shared.at(offset)
    }

    fn bytes(&self, address: u64, len: usize) -> io::Result<&[AtomicU8]> {
        let (shared, offset) = self.region(address)?;
        shared.bytes(offset, len)
    }

    fn u16(&self, address: u64) -> io::Result<u16> {
        Ok(self.at::<AtomicU16>(address)?.load(SeqCst))
    }
}

#[derive(Default)]
struct Queue {
    size: u16,
    descriptors: u64,
    available: u64,
    used: u64,
    next_available: u16,
    next_used: u16,
    /// Up to where the driver was told of used buffers.
    signalled: u16,
    enabled: bool,
}

/// A chain of descriptors that the driver has offered.
struct Chain {
    head: u16,
    parts: Vec<(u64, usize)>,
}

pub(super) struct Device {
    listener: UnixListener,
    socket: Option<UnixStream>,
    /// For interrupts.
    call: Option<UnixStream>,
    memory: Memory,
    queues: [Queue; 2],
    features: u64,
    config: Vec<u8>,
    /// The message to answer.
    request: u32,
    flags: u32,
    payload: Vec<u8>,
}

impl Device {
    /// For the driver that is going to connect; `features` are those of the kind of device.
    pub fn new(listener: UnixListener, features: u64, config: Vec<u8>) -> Self {
        Self {
            listener,
            socket: None,
            call: None,
            memory: Memory::default(),
            queues: Default::default(),
            features: features | FEATURES,
            config,
            request: 0,
            flags: 0,
            payload: Vec::new(),
        }
    }

    /// Readable when [`Device::receive`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Some(socket) => socket.as_fd(),
            None => self.listener.as_fd(),
        }
    }

    /// Takes a message; the kernel waits until [`Device::reply`].
    pub fn receive(&mut self) -> io::Result<Message> {
        let Some(socket) = &mut self.socket else {
            self.socket = Some(self.listener.accept()?.0);
            self.request = 0;
            return Ok(Message::Setup);
        };
        let mut header = [0; HEADER];
        let (length, fds) = sys::receive_with_fds(socket, &mut header)?;
        if length != HEADER {
            return Ok(Message::Gone);
        }
        self.request = word(&header, 0)?;
        self.flags = word(&header, 4)?;
        let length = word(&header, 8)? as usize;
        if length > MAX_PAYLOAD {
            return Err(io::Error::other("a message of its device is too long"));
        }
        self.payload.resize(length, 0);
        socket.read_exact(&mut self.payload)?;
        self.take(fds)
    }

    fn take(&mut self, fds: Vec<OwnedFd>) -> io::Result<Message> {
        match self.request {
            VRING_KICK => return Ok(Message::Kick(self.queue_index()?)),
            SET_MEM_TABLE => self.map(&fds)?,
            SET_BACKEND_REQ_FD => self.call = fds.into_iter().next().map(UnixStream::from),
            SET_VRING_NUM => {
                let size = word(&self.payload, 4)?;
                let sound = size.is_power_of_two() && size <= 1 << 15;
                if !sound {
                    return Err(io::Error::other("a queue of its device has an odd size"));
                }
                self.queue()?.size = size as u16;
            }
            SET_VRING_ADDR => {
                let [descriptors, used, available] =
                    [8, 16, 24].map(|offset| long(&self.payload, offset));
                let (descriptors, used, available) = (descriptors?, used?, available?);
                let queue = self.queue()?;
                *queue = Queue {
                    size: queue.size,
                    descriptors,
                    used,
                    available,
                    ..Queue::default()
                };
            }
            SET_VRING_ENABLE => self.queue()?.enabled = word(&self.payload, 4)? != 0,
            SET_FEATURES
            | SET_OWNER
            | SET_VRING_BASE
            | SET_PROTOCOL_FEATURES
            | GET_FEATURES
            | GET_PROTOCOL_FEATURES
            | GET_CONFIG => {}
            other => {
                let text = format!("its device was sent message {other}, which is not known");
                return Err(io::Error::other(text));
            }
        }
        Ok(Message::Setup)
    }

    fn queue_index(&self) -> io::Result<usize> {
        let index = word(&self.payload, 0)? as usize;
        match index < self.queues.len() {
            true => Ok(index),
            false => Err(io::Error::other("its device has no such queue")),
        }
    }

    fn queue(&mut self) -> io::Result<&mut Queue> {
        let index = self.queue_index()?;
        Ok(&mut self.queues[index])
    }

    fn map(&mut self, fds: &[OwnedFd]) -> io::Result<()> {
        self.memory.0.clear();
        for (index, fd) in fds.iter().enumerate() {
            let [address, size, _, offset] =
                [8, 16, 24, 32].map(|offset| long(&self.payload, 32 * index + offset));
            let (address, size) = (address?, size?);
            if address.checked_add(size).is_none() {
                return Err(io::Error::other("its memory has no end"));
            }
            let shared = Shared::map(fd, size as usize, offset?)?;
            self.memory.0.push(Region {
                address,
                size,
                shared,
            });
        }
        Ok(())
    }

    /// Answers the message last taken.
    pub fn reply(&mut self) -> io::Result<()> {
        let mut answer = Vec::new();
        match self.request {
            0 => return Ok(()),
            GET_FEATURES => answer.extend(self.features.to_ne_bytes()),
            GET_PROTOCOL_FEATURES => answer.extend(PROTOCOL_FEATURES.to_ne_bytes()),
            GET_CONFIG => {
                let size = word(&self.payload, 4)? as usize;
                answer.extend_from_slice(self.payload.get(..12).unwrap_or_default());
                answer.extend_from_slice(&self.config);
                answer.resize(12 + size.min(MAX_PAYLOAD), 0);
            }
            _ if self.flags & NEED_REPLY != 0 => answer.extend(0_u64.to_ne_bytes()),
            _ => return Ok(()),
        }
        let message = message(self.request, VERSION_1 | REPLY, &answer);
        match &mut self.socket {
            Some(socket) => socket.write_all(&message),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The next chain that the driver offers.
    fn next(&mut self, index: usize) -> io::Result<Option<Chain>> {
        let (queue, memory) = (&mut self.queues[index], &self.memory);
        if !queue.enabled {
            return Ok(None);
        }
        // First ask to be told of the next one, then look, so that none is missed.
        let size = u64::from(queue.size);
        memory
            .at::<AtomicU16>(queue.used + 4 + 8 * size)?
            .store(queue.next_available, SeqCst);
        fence(SeqCst);
        if memory.u16(queue.available + 2)? == queue.next_available {
            return Ok(None);
        }
        let slot = u64::from(queue.next_available % queue.size);
        let head = memory.u16(queue.available + 4 + 2 * slot)?;
        queue.next_available = queue.next_available.wrapping_add(1);
        let mut parts = Vec::new();
        let mut descriptor = head;
        while parts.len() < queue.size.into() {
            let at = queue.descriptors + DESCRIPTOR_BYTES * u64::from(descriptor);
            let address = memory.at::<AtomicU64>(at)?.load(SeqCst);
            let length = memory.at::<AtomicU32>(at + 8)?.load(SeqCst);
            parts.push((address, length as usize));
            if memory.u16(at + 12)? & DESCRIPTOR_NEXT == 0 {
                return Ok(Some(Chain { head, parts }));
            }
            descriptor = memory.u16(at + 14)?;
        }
        Err(io::Error::other("a chain of its device has no end"))
    }

    /// The next buffer that the driver sends, and what names it to [`Device::complete`].
    pub fn take_buffer(&mut self) -> io::Result<Option<(u16, Vec<u8>)>> {
        let Some(Chain { head, parts }) = self.next(TRANSMIT)? else {
            return Ok(None);
        };
        let mut data = Vec::new();
        for (address, length) in parts {
            let bytes = self.memory.bytes(address, length)?;
            data.extend(bytes.iter().map(|byte| byte.load(Relaxed)));
        }
        Ok(Some((head, data)))
    }

    /// Fills a buffer of the driver; false when there is none that is large enough.
    pub fn give_buffer(&mut self, data: &[u8]) -> io::Result<bool> {
        let Some(Chain { head, parts }) = self.next(RECEIVE)? else {
            return Ok(false);
        };
        let room: usize = parts.iter().map(|(_, length)| length).sum();
        let fits = data.len() <= room;
        let mut rest = if fits { data } else { &[] };
        for (address, length) in parts {
            let (part, after) = rest.split_at(length.min(rest.len()));
            for (to, from) in self.memory.bytes(address, part.len())?.iter().zip(part) {
                to.store(*from, Relaxed);
            }
            rest = after;
        }
        let written = if fits { data.len() } else { 0 };
        self.complete(RECEIVE, head, written as u32)?;
        Ok(fits)
    }

    /// Hands a buffer back to the driver.
    pub fn complete(&mut self, index: usize, head: u16, written: u32) -> io::Result<()> {
        let (queue, memory) = (&mut self.queues[index], &self.memory);
        let slot = queue.used + 4 + 8 * u64::from(queue.next_used % queue.size);
        memory
            .at::<AtomicU32>(slot)?
            .store(u32::from(head), Relaxed);
        memory.at::<AtomicU32>(slot + 4)?.store(written, Relaxed);
        queue.next_used = queue.next_used.wrapping_add(1);
        memory
            .at::<AtomicU16>(queue.used + 2)?
            .store(queue.next_used, SeqCst);
        Ok(())
    }

    /// Interrupts the kernel if the driver wants to know of the buffers handed back since the last
    /// time. Then the kernel has told its clock that it wants to run.
    pub fn interrupt(&mut self, index: usize) -> io::Result<()> {
        let queue = &mut self.queues[index];
        if !queue.enabled {
            return Ok(());
        }
        fence(SeqCst);
        let size = u64::from(queue.size);
        let wanted_at = self.memory.u16(queue.available + 4 + 2 * size)?;
        let news = queue.next_used.wrapping_sub(queue.signalled);
        let wanted = queue.next_used.wrapping_sub(wanted_at).wrapping_sub(1) < news;
        queue.signalled = queue.next_used;
        let (true, Some(call)) = (wanted, &mut self.call) else {
            return Ok(());
        };
        let state = [(index as u32).to_ne_bytes(), [0; 4]].concat();
        call.write_all(&message(BACKEND_VRING_CALL, VERSION_1 | NEED_REPLY, &state))?;
        call.read_exact(&mut [0; HEADER + 8])
    }
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let words = [request, flags, payload.len() as u32].map(u32::to_ne_bytes);
    [words.as_flattened(), payload].concat()
}

fn long(bytes: &[u8], at: usize) -> io::Result<u64> {
    let part = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let part = part.ok_or_else(|| io::Error::other("a message of its device is too short"))?;
    Ok(u64::from_ne_bytes(*part))
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let part = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let part = part.ok_or_else(|| io::Error::other("a message of its device is too short"))?;
    Ok(u32::from_ne_bytes(*part))
}
