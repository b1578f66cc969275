// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the standard library does not offer: shared memory, and sockets that carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Memory that another process writes too. Every access is checked against its end.
#[derive(Debug)]
pub(super) struct Shared {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is reached through atomics alone, and belongs to no thread.
unsafe impl Send for Shared {}

/// A number that can be read and written while another process does.
pub(super) trait Atomic {}
impl Atomic for AtomicU8 {}
impl Atomic for AtomicU16 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}

impl Shared {
    pub fn map(file: impl AsFd, len: usize, offset: u64) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let size = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the system chooses.
        let base = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, file, offset)? };
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// The number at `offset`; an error when it is not wholly inside, or not aligned.
    pub fn at<T: Atomic>(&self, offset: usize) -> io::Result<&T> {
        let end = offset.checked_add(size_of::<T>());
        if end.is_none_or(|end| end > self.len) || !offset.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other("an address outside of the shared memory"));
        }
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, as the mapping
        // begins with a page; any bits are a number.
        Ok(unsafe { self.base.add(offset).cast().as_ref() })
    }

    /// The bytes from `offset` on.
    pub fn bytes(&self, offset: usize, len: usize) -> io::Result<&[AtomicU8]> {
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::Error::other("a buffer outside of the shared memory"));
        }
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(self.base.add(offset).cast().as_ptr(), len) })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

pub(super) fn send_with_fds(socket: &UnixStream, data: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let parts = [IoSlice::new(data)];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None)?;
    match sent == data.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// One read, with the descriptors that came along; no bytes at the end.
pub(super) fn receive_with_fds(
    socket: &UnixStream,
    data: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; 8]);
    let mut parts = [IoSliceMut::new(data)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
        Err(Errno::ECONNRESET) => return Ok((0, Vec::new())),
        other => other?,
    };
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the system has just made these descriptors, for this process.
            fds.extend(
                received
                    .iter()
                    .map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    Ok((message.bytes, fds))
}

/// Waits until one of `fds` can be read, or was closed; which one, or nothing in time.
pub(super) fn wait_readable(fds: &[BorrowedFd], milliseconds: u16) -> io::Result<Option<usize>> {
    let mut set: Vec<_> = fds
        .iter()
        .map(|&fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    match poll(&mut set, PollTimeout::from(milliseconds)) {
        Err(Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(set.iter().position(|fd| fd.any() != Some(false))),
    }
}
