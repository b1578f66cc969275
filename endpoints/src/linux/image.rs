// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the kernel and the initramfs of a host are.

use std::path::{Path, PathBuf};

use crate::Error;

/// A kernel and an initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// User-Mode Linux with time travel.
    pub kernel: PathBuf,
    /// A cpio archive, compressed or not.
    pub initramfs: PathBuf,
}

/// What `make hosts` makes them from, as hosts/build.py has it too.
const KERNEL: u64 = key(&[
    include_bytes!("../../../hosts/kernel.config"),
    include_bytes!("../../../hosts/kernel.patch"),
]);
const INITRAMFS: u64 = key(&[
    include_bytes!("../../../hosts/build.py"),
    include_bytes!("../../../hosts/calls.c"),
    include_bytes!("../../../hosts/init"),
    include_bytes!("../../../hosts/poll.c"),
    include_bytes!("../../../hosts/tcp.c"),
]);

/// Names files by their contents: FNV-1a of 64 bits.
const fn key(files: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut file = 0;
    while file < files.len() {
        let mut at = 0;
        while at < files[file].len() {
            hash = (hash ^ files[file][at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    hash
}

impl Image {
    /// Those named, and otherwise what `make hosts` has made for this very program.
    pub fn find(kernel: Option<&Path>, initramfs: Option<&Path>) -> Result<Self, Error> {
        let place = |named: Option<&Path>, name, key| match named {
            Some(path) => path.to_owned(),
            None => {
                let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
                let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
                let home = || Some(PathBuf::from(set("HOME")?).join(".cache"));
                let cache = cache.or_else(home).unwrap_or_default();
                cache.join(format!("midwire/hosts/{name}-{key:016x}"))
            }
        };
        let image = Self {
            kernel: place(kernel, "linux", KERNEL),
            initramfs: place(initramfs, "initramfs", INITRAMFS),
        };
        for (path, named) in [(&image.kernel, kernel), (&image.initramfs, initramfs)] {
            if !path.is_file() {
                return Err(Error::Environment(match named {
                    Some(path) => format!("{} is not there", path.display()),
                    None => format!(
                        "{} is not there: run `make hosts`, or name a kernel and an initramfs",
                        path.display()
                    ),
                }));
            }
        }
        Ok(image)
    }
}
