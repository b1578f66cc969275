// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real card behind the kernel's VFIO, by group and container (IOMMU type 1).

use super::{Backend, CONFIG};
use crate::error::{Error, Result};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfio_bindings::bindings::vfio::VFIO_REGION_INFO_FLAG_MMAP;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError, VfioOps};
use vmm_sys_util::eventfd::EventFd;

const SYSFS_PCI: &str = "/sys/bus/pci/devices";
const COMMAND: u64 = 4; // PCI Local Bus 3.0, section 6.2.2: memory space and bus master enable
const MEMORY_AND_BUS_MASTER: u16 = 0b110;

/// A card bound to vfio-pci.
pub struct KernelVfio {
    address: String,
    /// The device's file, for reads and writes that report their errors. Closed before
    /// `device`, which gives the group back.
    file: File,
    device: VfioDevice,
    dma: Arc<dyn VfioOps>,
}

impl KernelVfio {
    /// Opens the card at a PCI address such as `0000:01:00.0` (the domain may be left out).
    pub fn open(address: &str) -> Result<Self> {
        let sysfs = device_path(Path::new(SYSFS_PCI), address)?;
        let address = name_of(&sysfs);
        let group = check_binding(&sysfs, &address)?;
        let explain = |e| explain(&address, &group, e);
        let dma: Arc<dyn VfioOps> = Arc::new(VfioContainer::new(None).map_err(explain)?);
        let device = VfioDevice::new(&sysfs, dma.clone(), false).map_err(explain)?;
        // SAFETY: `device` owns this descriptor and lives for the rest of this function.
        let file = unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) }
            .try_clone_to_owned()
            .map_err(Error::io(format!("use card {address}")))?
            .into();
        let card = Self {
            address,
            file,
            device,
            dma,
        };
        card.enable()
            .map_err(Error::io(format!("enable {}", card.describe())))?;
        Ok(card)
    }

    /// Lets the card answer in its BAR and write to memory.
    fn enable(&self) -> io::Result<()> {
        let mut command = [0; 2];
        self.read(CONFIG, COMMAND, &mut command)?;
        let command = u16::from_le_bytes(command) | MEMORY_AND_BUS_MASTER;
        self.write(CONFIG, COMMAND, &command.to_le_bytes())
    }

    fn position(&self, region: u32, offset: u64, len: usize) -> io::Result<u64> {
        let size = self.device.get_region_size(region);
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => Ok(self.device.get_region_offset(region) + offset),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {offset:#x} are outside region {region} of {size} bytes"),
            )),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The device's directory in sysfs.
fn device_path(root: &Path, address: &str) -> Result<PathBuf> {
    let full = match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    };
    let shape = "0000:00:00.0";
    let fits = full.len() == shape.len()
        && full.chars().zip(shape.chars()).all(|(c, s)| match s {
            '0' => c.is_ascii_hexdigit(),
            _ => c == s,
        });
    if !fits {
        return Err(Error::Unavailable(format!(
            "`{address}` is no PCI address; write it like 0000:01:00.0, as `lspci -D` does"
        )));
    }
    let path = root.join(full.to_ascii_lowercase());
    if !path.exists() {
        return Err(Error::Unavailable(format!(
            "there is no PCI device {}; `lspci -D` lists those that are there",
            name_of(&path)
        )));
    }
    Ok(path)
}

/// Checks that vfio-pci has the device; returns its IOMMU group.
fn check_binding(sysfs: &Path, address: &str) -> Result<String> {
    let bind = format!("bind it with `driverctl set-override {address} vfio-pci`");
    match std::fs::read_link(sysfs.join("driver")) {
        Ok(driver) if name_of(&driver) == "vfio-pci" => {}
        Ok(driver) => {
            return Err(Error::Unavailable(format!(
                "card {address} is bound to the driver {}, not to vfio-pci; {bind}",
                name_of(&driver)
            )));
        }
        Err(_) => {
            return Err(Error::Unavailable(format!(
                "card {address} is bound to no driver; {bind}"
            )));
        }
    }
    match std::fs::read_link(sysfs.join("iommu_group")) {
        Ok(group) => Ok(name_of(&group)),
        Err(_) => Err(Error::Unavailable(format!(
            "card {address} is in no IOMMU group; enable the IOMMU in the firmware and with \
             intel_iommu=on or amd_iommu=on on the kernel's command line"
        ))),
    }
}

fn explain(address: &str, group: &str, error: VfioError) -> Error {
    let sentence = match &error {
        VfioError::OpenGroup(e, _) if e.raw_os_error() == Some(libc::EBUSY) => {
            return Error::InUse(format!("card {address}"));
        }
        VfioError::OpenContainer(e) => format!(
            "card {address}: cannot open /dev/vfio/vfio ({e}); load the module vfio-pci and give \
             yourself access to /dev/vfio"
        ),
        VfioError::OpenGroup(e, _) => format!(
            "card {address}: cannot open /dev/vfio/{group} ({e}); give yourself read and write \
             access to it"
        ),
        VfioError::GroupViable => format!(
            "card {address}: other devices of its IOMMU group {group} are not bound to vfio-pci; \
             bind all that `ls /sys/kernel/iommu_groups/{group}/devices` shows"
        ),
        other => format!("card {address}: {other}"),
    };
    Error::Unavailable(sentence)
}

impl Backend for KernelVfio {
    fn describe(&self) -> String {
        format!("card {}", self.address)
    }

    fn region_size(&self, region: u32) -> u64 {
        self.device.get_region_size(region)
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let position = self.position(region, offset, buf.len())?;
        self.file.read_exact_at(buf, position)
    }

    fn write(&self, region: u32, offset: u64, buf: &[u8]) -> io::Result<()> {
        let position = self.position(region, offset, buf.len())?;
        self.file.write_all_at(buf, position)
    }

    fn map_region(&self, region: u32) -> io::Result<Option<MmapRaw>> {
        if self.device.get_region_flags(region) & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return Ok(None);
        }
        MmapOptions::new()
            .offset(self.device.get_region_offset(region))
            .len(self.device.get_region_size(region) as usize)
            .map_raw(&self.file)
            .map(Some)
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        va: *mut u8,
        len: usize,
        _fd: BorrowedFd<'_>,
        _offset: u64,
    ) -> io::Result<()> {
        // SAFETY: the caller keeps the mapping in place and makes no references to what the
        // card may write.
        unsafe { self.dma.vfio_dma_map(iova, len, va) }.map_err(|e| match &e {
            VfioError::IommuDmaMap(errno) if errno.errno() == libc::ENOMEM => {
                io::Error::other(format!(
                    "the limit of locked memory is below {len} bytes; raise it with `ulimit -l`"
                ))
            }
            _ => io::Error::other(e),
        })
    }

    fn dma_unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        self.dma.vfio_dma_unmap(iova, len).map_err(io::Error::other)
    }

    fn set_msix(&self, events: &[EventFd]) -> io::Result<()> {
        if events.is_empty() {
            return self.device.disable_msix().map_err(io::Error::other);
        }
        self.device
            .enable_msix(events.iter().collect())
            .map_err(io::Error::other)
    }

    fn reset(&self) -> io::Result<()> {
        self.device.reset();
        self.enable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn sentence(e: Error) -> String {
        let text = e.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn a_card_that_is_not_there_is_named() {
        let e = KernelVfio::open("0000:ff:1f.7")
            .err()
            .expect("no such card");
        assert_eq!(
            sentence(e),
            "there is no PCI device 0000:ff:1f.7; `lspci -D` lists those that are there"
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "eth0", "0000:01:00", "0000:01:00.0/..", "../../etc:1"] {
            let e = KernelVfio::open(text).err().expect("no address");
            assert!(sentence(e).contains("is no PCI address"), "{text}");
        }
    }

    #[test]
    fn the_binding_is_checked() {
        let root = tempfile::tempdir().expect("tempdir");
        let device = root.path().join("0000:01:00.0");
        std::fs::create_dir(&device).expect("create");
        assert_eq!(device_path(root.path(), "01:00.0").expect("found"), device);

        let check = || check_binding(&device, "0000:01:00.0");
        assert!(sentence(check().unwrap_err()).contains("bound to no driver"));
        symlink("/x/drivers/xdma", device.join("driver")).expect("symlink");
        assert!(sentence(check().unwrap_err()).contains("the driver xdma, not to vfio-pci"));
        std::fs::remove_file(device.join("driver")).expect("remove");
        symlink("/x/drivers/vfio-pci", device.join("driver")).expect("symlink");
        assert!(sentence(check().unwrap_err()).contains("no IOMMU group"));
        symlink("/x/iommu_groups/17", device.join("iommu_group")).expect("symlink");
        assert_eq!(check().expect("bound"), "17");
    }

    #[test]
    fn a_busy_group_is_a_card_in_use() {
        let e = VfioError::OpenGroup(io::Error::from_raw_os_error(libc::EBUSY), "17".into());
        assert!(matches!(explain("0000:01:00.0", "17", e), Error::InUse(_)));
        let e = VfioError::OpenGroup(io::Error::from_raw_os_error(libc::EACCES), "17".into());
        assert!(sentence(explain("0000:01:00.0", "17", e)).contains("/dev/vfio/17"));
    }
}
