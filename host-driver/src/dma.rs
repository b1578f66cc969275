// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that host and card share. Always a memfd: a vfio-user server maps it by its
//! descriptor, the kernel's VFIO by its address.

use crate::backend::Backend;
use crate::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd};
use std::sync::Arc;

const HUGE_PAGE: usize = 2 << 20;

/// A piece of shared memory that the card reaches at [`iova`](Self::iova). Given back on drop.
pub(crate) struct DmaMemory {
    backend: Arc<dyn Backend>,
    map: MmapRaw,
    iova: u64,
}

impl DmaMemory {
    /// Takes `len` zeroed bytes and shows them to the card at `iova`. Huge pages are used when
    /// they are asked for and there are any.
    pub fn new(backend: Arc<dyn Backend>, iova: u64, len: usize, huge: bool) -> Result<Self> {
        let fail = |source| Error::Io {
            what: format!("get {len} bytes of memory to share with the card"),
            source,
        };
        let (file, map) = match huge.then(|| share(len.next_multiple_of(HUGE_PAGE), true)) {
            Some(Ok(pages)) => pages,
            _ => share(len, false).map_err(fail)?,
        };
        // SAFETY: `map` is a shared mapping of all of `file`, which `self` keeps until the card
        // has lost it, and hands out as raw pointers only.
        unsafe { backend.dma_map(iova, map.as_mut_ptr(), map.len(), file.as_fd(), 0) }.map_err(
            |source| Error::Io {
                what: format!("give {} memory to write to", backend.describe()),
                source,
            },
        )?;
        Ok(Self { backend, map, iova })
    }

    /// Start of the memory in this process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Where the card finds it.
    pub fn iova(&self) -> u64 {
        self.iova
    }
}

fn share(len: usize, huge: bool) -> io::Result<(File, MmapRaw)> {
    let huge = if huge { libc::MFD_HUGETLB } else { 0 };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge;
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"midwire-ring".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is a fresh descriptor that nothing else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64)?;
    // Who is given the descriptor must not be able to take pages away from under our mapping.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain call on an open descriptor; the result is checked.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let map = MmapOptions::new().len(len).populate().map_raw(&file)?;
    Ok((file, map))
}

impl Drop for DmaMemory {
    fn drop(&mut self) {
        // A card that is gone cannot write any more; there is nobody to tell.
        let _ = self.backend.dma_unmap(self.iova, self.map.len());
    }
}
