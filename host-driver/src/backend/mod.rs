// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the driver reaches a card. Everything above knows only [`Backend`]: a real card behind
//! the kernel's VFIO, the virtual card behind a vfio-user socket, and a card in the same
//! process (tests) look alike.

mod kernel;
mod vfio_user;

pub use kernel::KernelVfio;
pub use vfio_user::VfioUser;

use memmap2::MmapRaw;
use std::io;
use std::os::fd::BorrowedFd;
use vmm_sys_util::eventfd::EventFd;

/// Region number of BAR 0, where the registers are.
pub const BAR0: u32 = 0;
/// Region number of PCI configuration space.
pub const CONFIG: u32 = 7;

/// A PCI device that the driver may use alone. Regions have VFIO's numbers.
pub trait Backend: Send + Sync {
    /// What the card is called in messages, such as `card 0000:01:00.0`.
    fn describe(&self) -> String;

    /// Bytes of a region, 0 when there is none.
    fn region_size(&self, region: u32) -> u64;

    /// Reads `buf.len()` bytes at `offset` of a region.
    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset` of a region.
    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Maps a region into memory; `None` when it can be reached by [`read`](Self::read) and
    /// [`write`](Self::write) alone.
    fn map_region(&self, region: u32) -> io::Result<Option<MmapRaw>>;

    /// Lets the card reach `len` bytes of host memory at bus address `iova`.
    ///
    /// # Safety
    /// `va..va + len` must be a shared mapping of `fd` at `offset` that stays in place until
    /// [`dma_unmap`](Self::dma_unmap) or until the backend is gone, and no Rust reference may
    /// be made to a part of it while the card may write that part.
    unsafe fn dma_map(
        &self,
        iova: u64,
        va: *mut u8,
        len: usize,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()>;

    /// Takes back what [`dma_map`](Self::dma_map) gave, with the same address and length.
    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()>;

    /// Joins MSI-X vector n to `events[n]`; an empty slice disables MSI-X.
    fn set_msix(&self, events: &[EventFd]) -> io::Result<()>;

    /// Resets the function.
    fn reset(&self) -> io::Result<()>;
}
