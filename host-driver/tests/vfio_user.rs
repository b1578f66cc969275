// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's vfio-user client against a server that others wrote, with the model behind
//! it: registers by message, DMA through the descriptor that was sent, interrupts by eventfd.

mod model;

use memmap2::{MmapOptions, MmapRaw};
use midwire_driver::backend::Backend;
use midwire_driver::{CaptureConfig, Card, EventFd, VfioUser, Wake};
use midwire_trace::Block;
use model::{Faults, Model};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd};
use std::path::Path;
use std::time::Duration;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

struct Served {
    model: Model,
    config: [u8; 256],
    maps: Vec<(u64, MmapRaw)>,
}

impl ServerBackend for Served {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            7 => data.copy_from_slice(&self.config[offset as usize..][..data.len()]),
            _ => {
                assert_eq!(
                    self.config[4] & 0b110,
                    0b110,
                    "memory and bus master are on"
                );
                self.model.read(region, offset, data)?;
            }
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            7 => self.config[offset as usize..][..data.len()].copy_from_slice(data),
            _ => self.model.write(region, offset, data)?,
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        assert_eq!(flags, DmaMapFlags::READ_WRITE);
        let file = fd.expect("memory comes with its descriptor");
        let map = MmapOptions::new()
            .offset(offset)
            .len(size as usize)
            .map_raw(&file)?;
        // SAFETY: `maps` keeps the mapping until it is taken back.
        unsafe {
            self.model
                .dma_map(address, map.as_mut_ptr(), map.len(), file.as_fd(), offset)?;
        }
        self.maps.push((address, map));
        Ok(())
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.model.dma_unmap(address, size as usize)?;
        self.maps.retain(|map| map.0 != address);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.model.reset()
    }

    fn set_irqs(
        &mut self,
        index: u32,
        _flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        assert_eq!((index, start, count as usize), (2, 0, fds.len()));
        let events: Vec<EventFd> = fds
            .into_iter()
            // SAFETY: the descriptor is ours alone.
            .map(|fd| unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) })
            .collect();
        self.model.set_msix(&events)
    }
}

fn serve(path: &Path, model: Model) -> std::thread::JoinHandle<()> {
    let region = |index| ServerRegion {
        region_info: vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            index,
            flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
            size: match index {
                0 => 4096,
                7 => 256,
                _ => 0,
            },
            ..Default::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    };
    let irqs = (0..5).map(|index| IrqInfo {
        index,
        flags: VFIO_IRQ_INFO_EVENTFD,
        count: u32::from(index == 2),
    });
    let regions = (0..9).map(region).collect();
    let server = Server::new(path, true, irqs.collect(), regions).expect("server");
    std::thread::spawn(move || {
        let mut served = Served {
            model,
            config: [0; 256],
            maps: Vec::new(),
        };
        server.run(&mut served).expect("the client left in order");
        assert!(served.maps.is_empty(), "all memory was taken back");
    })
}

#[test]
fn a_capture_over_the_socket() {
    let dir = tempfile::tempdir().expect("tempdir");
    let socket = dir.path().join("card.sock");
    let path = dir.path().join("capture.mwc");
    let model = Model::new(Faults::default());
    let server = serve(&socket, model.clone());

    let card = Card::open(Box::new(VfioUser::connect(&socket).expect("connect"))).expect("open");
    assert!(card.info().name.contains("card.sock"));
    let config = CaptureConfig {
        wake: Wake::Interrupts,
        final_wait: Duration::from_secs(1),
        ..CaptureConfig::new(&path)
    };
    let capture = card.start_capture(config).expect("start");
    for n in 0..5000 {
        model.frame(n, 300);
    }
    let summary = capture.stop().expect("stop");
    assert!(summary.complete, "{summary:?}");
    assert_eq!(summary.records, 5000);
    let bytes = std::fs::read(&path).expect("read");
    let records: usize = bytes
        .chunks(64 << 10)
        .map(|block| Block::parse(block).expect("whole").records().count())
        .sum();
    assert_eq!(records, 5000);
    drop(card);
    server.join().expect("server");
}
