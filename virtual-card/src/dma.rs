// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host memory that the card may write to, by bus address.

use memmap2::{MmapOptions, MmapRaw};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

/// Regions that a client may have at a time.
const MAX_REGIONS: usize = 1 << 16;

struct Region {
    size: u64,
    /// `None` when the card may not write there.
    memory: Option<MmapRaw>,
}

/// The regions by their bus address; they do not overlap.
#[derive(Default)]
pub(crate) struct Dma {
    regions: BTreeMap<u64, Region>,
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Dma {
    /// Shows `size` bytes of a file at `offset` to the card at bus address `iova`.
    pub fn map(
        &mut self,
        iova: u64,
        size: u64,
        fd: OwnedFd,
        offset: u64,
        write: bool,
    ) -> io::Result<()> {
        let end = iova.checked_add(size).filter(|_| size > 0);
        let end = end.ok_or_else(|| invalid("no such range of bus addresses"))?;
        if self.regions.len() >= MAX_REGIONS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let below = self.regions.range(..end).next_back();
        if below.is_some_and(|(start, region)| start + region.size > iova) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = File::from(fd);
        // Memory behind the end of its file would be a bus error at the first touch.
        if offset
            .checked_add(size)
            .is_none_or(|end| file.metadata().map_or(true, |m| m.len() < end))
        {
            return Err(invalid("the memory is longer than its file"));
        }
        let len = usize::try_from(size).map_err(|_| invalid("too long"))?;
        let memory = write
            .then(|| MmapOptions::new().offset(offset).len(len).map_raw(&file))
            .transpose()?;
        self.regions.insert(iova, Region { size, memory });
        Ok(())
    }

    /// Takes back every region that lies in the range; none may lie in it in part.
    pub fn unmap(&mut self, iova: u64, size: u64) -> io::Result<()> {
        let end = iova
            .checked_add(size)
            .ok_or_else(|| invalid("no such range of bus addresses"))?;
        let inside = |start: u64, region: &Region| start >= iova && start + region.size <= end;
        let mut touched = self
            .regions
            .range(..end)
            .rev()
            .take_while(|(start, region)| *start + region.size > iova);
        if touched.any(|(start, region)| !inside(*start, region)) {
            return Err(invalid("a region lies in the range in part"));
        }
        self.regions.retain(|start, region| !inside(*start, region));
        Ok(())
    }

    /// Takes back everything.
    pub fn clear(&mut self) {
        self.regions.clear();
    }

    /// Writes to the bus; false when no region has all of the range.
    pub fn write(&self, iova: u64, data: &[u8]) -> bool {
        let Some((start, region)) = self.regions.range(..=iova).next_back() else {
            return false;
        };
        let offset = iova - start;
        let (Some(memory), Some(left)) = (&region.memory, region.size.checked_sub(offset)) else {
            return false;
        };
        if left < data.len() as u64 {
            return false;
        }
        // A host that sees these bytes has to see those of earlier writes as well.
        fence(Ordering::Release);
        // SAFETY: the range lies in the mapping, which is shared with the host, so that no
        // references to it exist; `data` is memory of this process alone.
        unsafe {
            let to = memory.as_mut_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn memory(len: u64) -> File {
        let file = tempfile::tempfile().expect("file");
        file.set_len(len).expect("length");
        file
    }

    fn fd(file: &File) -> OwnedFd {
        file.try_clone().expect("clone").into()
    }

    #[test]
    fn writes_land_at_the_offset_and_nowhere_else() {
        let file = memory(3 * 4096);
        let mut dma = Dma::default();
        dma.map(0x1_0000, 4096, fd(&file), 4096, true).expect("map");
        assert!(dma.write(0x1_0ffc, &[1, 2, 3, 4]));
        assert!(!dma.write(0x1_0ffd, &[1, 2, 3, 4]), "over the end");
        assert!(!dma.write(0xffff, &[1]), "below");
        assert!(!dma.write(u64::MAX, &[1, 2]));
        let mut all = [0; 3 * 4096];
        file.read_exact_at(&mut all, 0).expect("read");
        assert_eq!(all.iter().filter(|b| **b != 0).count(), 4);
        assert_eq!(all[8188..8192], [1, 2, 3, 4]);
        dma.unmap(0x1_0000, 4096).expect("unmap");
        assert!(!dma.write(0x1_0000, &[1]));
    }

    #[test]
    fn wrong_ranges_are_refused() {
        let file = memory(8192);
        let mut dma = Dma::default();
        assert!(dma.map(0, 0, fd(&file), 0, true).is_err(), "empty");
        assert!(
            dma.map(u64::MAX - 10, 4096, fd(&file), 0, true).is_err(),
            "wraps"
        );
        assert!(
            dma.map(0, 4096, fd(&file), 8192, true).is_err(),
            "behind the file"
        );
        assert!(
            dma.map(0, 4096, fd(&file), u64::MAX, true).is_err(),
            "offset wraps"
        );
        dma.map(4096, 8192, fd(&file), 0, true).expect("map");
        assert!(
            dma.map(0, 4097, fd(&file), 0, true).is_err(),
            "overlaps below"
        );
        assert!(
            dma.map(8192, 4096, fd(&file), 0, true).is_err(),
            "overlaps inside"
        );
        dma.map(0, 4096, fd(&file), 0, false).expect("just below");
        assert!(!dma.write(0, &[1]), "a region to read only");
        assert!(dma.unmap(4096, 4096).is_err(), "in part");
        assert!(dma.write(4096, &[1]), "which takes nothing away");
        dma.unmap(0, 1 << 40).expect("all of them");
        assert!(!dma.write(4096, &[1]));
    }
}
