// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card that serves until it is told to stop.

use crate::card::{Config, VirtualCard};
use crate::error::{Error, Result};
use crate::stats::Stats;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;

/// Makes a card and runs it until SIGINT or SIGTERM; `ready` is called when it serves. To be
/// called from the main thread before there are others, since a signal that is waited for has
/// to be blocked in all of them.
pub fn serve(config: Config, ready: impl FnOnce(&VirtualCard)) -> Result<Stats> {
    let what = "wait for signals";
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().map_err(Error::errno(what))?;
    let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map_err(Error::errno(what))?;
    let card = VirtualCard::spawn(config)?;
    ready(&card);
    loop {
        let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, 1000u16) {
            Ok(1..) => return Ok(card.shutdown()),
            _ if !card.is_running() => return Err(Error::Stopped),
            _ => {}
        }
    }
}
