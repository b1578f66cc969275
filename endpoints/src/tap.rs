// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TAP: an interface of the calling thread's network namespace, and the descriptor at its
//! other side, where one read or write is one frame without FCS.
//!
//! Nothing is offloaded to a TAP that does not ask for it, so frames are no longer than the MTU
//! and carry real checksums.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

nix::ioctl_write_ptr_bad!(tun_set_interface, libc::TUNSETIFF, libc::ifreq);
nix::ioctl_write_ptr_bad!(tun_attach_filter, libc::TUNATTACHFILTER, libc::sock_fprog);

/// Where TAPs come from.
pub(crate) const DEVICE: &str = "/dev/net/tun";

/// Opens the TUN/TAP device, non-blocking.
pub(crate) fn open() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(DEVICE)
}

/// Makes `device` the other side of a new interface called `name`.
pub(crate) fn create(device: &File, name: &str) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    debug_assert!(name.len() < request.ifr_name.len());
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives across the call, which reads and writes nothing but it.
    unsafe { tun_set_interface(device.as_raw_fd(), &raw const request) }?;
    Ok(())
}

/// Keeps IPv6 multicast listener reports off the wire: they come at random times, and nobody on a
/// wire with two ends listens to them.
pub(crate) fn silence_listener_reports(tap: BorrowedFd<'_>) -> io::Result<()> {
    const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Jumps count instructions from the next one.
    let op = |code: u32, k, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        op(HALF, 12, 0, 0),         // EtherType
        op(EQUAL, 0x86dd, 0, 8),    // IPv6, or keep
        op(BYTE, 20, 0, 0),         // next header
        op(EQUAL, 0, 0, 6),         // hop-by-hop options, or keep
        op(BYTE, 54, 0, 0),         // next header after the options
        op(EQUAL, 58, 0, 4),        // ICMPv6, or keep
        op(BYTE, 62, 0, 0),         // ICMPv6 type
        op(EQUAL, 143, 1, 0),       // version 2 report
        op(EQUAL, 131, 0, 1),       // version 1 report
        op(RETURN, 0, 0, 0),        // lose the frame
        op(RETURN, u32::MAX, 0, 0), // keep all of it
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program during the call, while both live.
    unsafe { tun_attach_filter(tap.as_raw_fd(), &raw const filter) }?;
    Ok(())
}

/// A new interface called `name`, and its other side.
pub(crate) fn new(name: &str) -> io::Result<OwnedFd> {
    let device = open()?;
    create(&device, name)?;
    Ok(device.into())
}
