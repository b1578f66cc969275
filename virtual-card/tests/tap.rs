// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two TAPs in wall time: frames from one interface come out at the other. Needs the right to
//! make TAPs; without it the test says so and passes.

use midwire_virtual_card::{Config, Error, PortConfig, VirtualCard};
use nix::net::if_::if_nametoindex;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// An interface that sees and sends whole frames: packet(7).
struct Raw(OwnedFd);

impl Raw {
    fn on(name: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain system calls; the address is valid for all of its length.
        unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_PACKET, kind, protocol.into());
            assert!(fd >= 0, "packet socket");
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = if_nametoindex(name).expect("interface") as i32;
            let size = size_of_val(&address) as u32;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), size), 0, "bind");
            Self(OwnedFd::from_raw_fd(fd))
        }
    }

    fn up(&self, name: &str) {
        // SAFETY: as above; ifreq is plain data.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            request
                .ifr_name
                .iter_mut()
                .zip(name.bytes())
                .for_each(|(to, b)| *to = b.cast_signed());
            request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
            assert_eq!(
                libc::ioctl(self.0.as_raw_fd(), libc::SIOCSIFFLAGS, &request),
                0,
                "up"
            );
        }
    }

    fn send(&self, frame: &[u8]) -> bool {
        nix::unistd::write(&self.0, frame) == Ok(frame.len())
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 10_000];
        let len = nix::unistd::read(&self.0, &mut frame).ok()?;
        frame.truncate(len);
        Some(frame)
    }
}

fn frame(n: u16, side: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![n as u8; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[14..16].copy_from_slice(&n.to_be_bytes());
    frame[16] = side;
    frame
}

/// The numbers of the other side's frames that arrive; short frames come padded.
fn collect(from: &Raw, side: u8, count: u16) -> Vec<u16> {
    let mut numbers = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while numbers.len() < count.into() && Instant::now() < deadline {
        match from.receive() {
            // An interface shows what it sends as well.
            Some(frame) if frame[12..14] == [0x88, 0xb5] && frame[16] == side => {
                assert!(frame.len() >= 60);
                numbers.push(u16::from_be_bytes([frame[14], frame[15]]));
            }
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    numbers
}

#[test]
fn frames_go_from_tap_to_tap() {
    let names = [0, 1].map(|n| format!("mw{n}t{}", std::process::id()));
    let ports = names.clone().map(PortConfig::Tap);
    let card = match VirtualCard::spawn(Config {
        ports,
        ..Config::default()
    }) {
        Ok(card) => card,
        Err(Error::Io { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::NotFound
            ) =>
        {
            println!("skipped: no right to make a TAP ({source})");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let [a, b] = [0, 1].map(|n: usize| {
        let raw = Raw::on(&names[n]);
        raw.up(&names[n]);
        raw
    });
    std::thread::sleep(Duration::from_millis(50));
    let before = card.stats(); // what was sent while one of them was still down is lost
    const COUNT: u16 = 2000;
    let received = std::thread::scope(|scope| {
        let threads =
            [(&b, 0), (&a, 1)].map(|(raw, side)| scope.spawn(move || collect(raw, side, COUNT)));
        for n in 0..COUNT {
            let len = 20 + usize::from(n) * 53 % 1480;
            for (raw, side) in [(&a, 0), (&b, 1)] {
                while !raw.send(&frame(n, side, len)) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if n % 50 == 49 {
                std::thread::sleep(Duration::from_millis(5)); // the TAP's own queue is short
            }
        }
        threads.map(|thread| thread.join().expect("collected"))
    });
    for numbers in received {
        assert!(numbers.into_iter().eq(0..COUNT), "all of them in order");
    }
    let stats = card.shutdown();
    for (port, before) in stats.ports.iter().zip(before.ports) {
        assert_eq!(port.lost_out, before.lost_out);
        assert!(port.frames_in >= COUNT.into() && port.frames_out >= COUNT.into());
    }
}
