// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 32-bit accesses to the registers in BAR 0, by memory where the backend maps it, else by
//! message.

use crate::backend::{BAR0, Backend};
use crate::error::{Error, Result};
use crate::regs;
use memmap2::MmapRaw;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Registers {
    map: Option<MmapRaw>,
    backend: Arc<dyn Backend>,
}

impl Registers {
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let size = backend.region_size(BAR0);
        if size < u64::from(regs::SIZE) {
            return Err(Error::Unavailable(format!(
                "{} has a BAR 0 of {size} bytes, a midwire card's has at least {}",
                backend.describe(),
                regs::SIZE
            )));
        }
        let map = backend
            .map_region(BAR0)
            .map_err(Error::io(format!("map BAR 0 of {}", backend.describe())))?
            .filter(|map| map.len() >= regs::SIZE as usize);
        Ok(Self { map, backend })
    }

    fn failed(&self, verb: &str, register: u32) -> impl FnOnce(io::Error) -> Error {
        Error::io(format!(
            "{verb} register {register:#x} of {}",
            self.backend.describe()
        ))
    }

    pub fn read(&self, register: u32) -> Result<u32> {
        debug_assert!(register < regs::SIZE && register.is_multiple_of(4));
        if let Some(map) = &self.map {
            // SAFETY: the register lies inside the mapping, aligned to 4.
            let value = unsafe {
                map.as_ptr()
                    .add(register as usize)
                    .cast::<u32>()
                    .read_volatile()
            };
            return Ok(u32::from_le(value));
        }
        let mut value = [0; 4];
        self.backend
            .read(BAR0, register.into(), &mut value)
            .map_err(self.failed("read", register))?;
        Ok(u32::from_le_bytes(value))
    }

    pub fn read64(&self, register: u32) -> Result<u64> {
        let low = self.read(register)?;
        Ok(u64::from(self.read(register + 4)?) << 32 | u64::from(low))
    }

    pub fn write(&self, register: u32, value: u32) -> Result<()> {
        debug_assert!(register < regs::SIZE && register.is_multiple_of(4));
        if let Some(map) = &self.map {
            // SAFETY: the register lies inside the mapping, aligned to 4.
            unsafe {
                map.as_mut_ptr()
                    .add(register as usize)
                    .cast::<u32>()
                    .write_volatile(value.to_le());
            }
            return Ok(());
        }
        self.backend
            .write(BAR0, register.into(), &value.to_le_bytes())
            .map_err(self.failed("write", register))
    }

    /// Waits until the bits of `mask` in the status register are clear; returns the register.
    pub fn wait_idle(&self, mask: u32, what: &'static str, limit: Duration) -> Result<u32> {
        let start = Instant::now();
        let mut pause = Duration::ZERO;
        loop {
            let status = self.read(regs::STATUS)?;
            if status & mask == 0 {
                return Ok(status);
            }
            if start.elapsed() > limit {
                return Err(Error::Timeout { what, after: limit });
            }
            // Most waits end at the first look; the long ones need not keep a core busy.
            std::thread::sleep(pause);
            pause = (pause * 2 + Duration::from_micros(10)).min(Duration::from_millis(1));
        }
    }
}
