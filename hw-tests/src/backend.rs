// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's way to a virtual card in the same process.

use memmap2::MmapRaw;
use midwire_driver::{Backend, EventFd};
use midwire_virtual_card::HostBus;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A [`Backend`] over the bus of a [`VirtualCard`](midwire_virtual_card::VirtualCard).
pub struct InProcess(HostBus);

impl InProcess {
    /// Takes the card into use.
    pub fn new(bus: HostBus) -> Self {
        bus.enable();
        Self(bus)
    }
}

impl Backend for InProcess {
    fn describe(&self) -> String {
        "virtual card".into()
    }

    fn region_size(&self, region: u32) -> u64 {
        self.0.region_size(region)
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read(region, offset, buf);
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.0.write(region, offset, buf);
        Ok(())
    }

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
        self.0
            .dma_map(iova, len as u64, fd.try_clone_to_owned()?, offset)
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        self.0.dma_unmap(iova, len as u64)
    }

    fn set_msix(&self, events: &[EventFd]) -> io::Result<()> {
        let vector = match events.first() {
            // SAFETY: the descriptor is open as long as `events` lives.
            Some(event) => Some(
                unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
                    .as_fd()
                    .try_clone_to_owned()?,
            ),
            None => None,
        };
        self.0.set_interrupt(vector)
    }

    fn reset(&self) -> io::Result<()> {
        self.0.reset();
        self.0.enable();
        Ok(())
    }
}
