// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card behind its socket: what a client sees, and what hostile ones cannot do.

mod common;

use common::{frame, memory};
use midwire_trace::Port;
use midwire_virtual_card::{Config, Error, PortConfig, Time, VirtualCard, Width};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const GET_IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const READ: u16 = 9;
const WRITE: u16 = 10;
const RESET: u16 = 13;
const CONFIG: u32 = 7;

fn serve(dir: &Path) -> VirtualCard {
    let ports = [PortConfig::Line, PortConfig::Line];
    let socket = Some(dir.join("card"));
    let config = Config {
        width: Width::W64,
        time: Time::Wall,
        ports,
        socket,
        ..Config::default()
    };
    VirtualCard::spawn(config).expect("a card")
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

struct Client(UnixStream);

impl Client {
    fn connect(card: &VirtualCard) -> Self {
        let stream = UnixStream::connect(card.socket().expect("a socket")).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("timeout");
        Self(stream)
    }

    fn greeted(card: &VirtualCard) -> Self {
        let mut client = Self::connect(card);
        let reply = client.greet().expect("greeting");
        assert_eq!(reply[..4], [0, 0, 1, 0]);
        client
    }

    fn greet(&mut self) -> Result<Vec<u8>, u32> {
        self.call(VERSION, &[&[0, 0, 1, 0][..], b"{}\0"].concat(), &[])
    }

    fn send(&mut self, header: &[u8], body: &[u8], fds: &[RawFd]) {
        let message = [header, body].concat();
        let rights = [ControlMessage::ScmRights(fds)];
        let control = if fds.is_empty() { &[][..] } else { &rights[..] };
        let part = [IoSlice::new(&message)];
        let sent = sendmsg::<()>(
            self.0.as_raw_fd(),
            &part,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        assert_eq!(sent, Ok(message.len()));
    }

    /// The reply's body or its error; `u32::MAX` when the connection is closed.
    fn reply(&mut self) -> Result<Vec<u8>, u32> {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).map_err(|e| {
            assert!(
                matches!(
                    e.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ),
                "{e}"
            );
            u32::MAX
        })?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        assert_eq!(word(8) & 0xf, 1, "a reply");
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).expect("body");
        match word(8) & 0x20 {
            0 => Ok(body),
            _ => Err(word(12)),
        }
    }

    fn call(&mut self, command: u16, body: &[u8], fds: &[RawFd]) -> Result<Vec<u8>, u32> {
        let mut header = words(&[u32::from(command) << 16 | 7, 16 + body.len() as u32, 0, 0]);
        header.truncate(16);
        self.send(&header, body, fds);
        self.reply()
    }

    fn read(&mut self, region: u32, offset: u64, len: u32) -> Vec<u8> {
        let ask = [longs(&[offset]), words(&[region, len])].concat();
        let reply = self.call(READ, &ask, &[]).expect("reads do not fail");
        assert_eq!(reply[..16], ask);
        reply[16..].to_vec()
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let ask = [
            longs(&[offset]),
            words(&[region, data.len() as u32]),
            data.to_vec(),
        ]
        .concat();
        self.call(WRITE, &ask, &[]).expect("writes do not fail");
    }

    fn is_closed(&mut self) -> bool {
        self.reply() == Err(u32::MAX)
    }
}

fn map_message(offset: u64, iova: u64, size: u64) -> Vec<u8> {
    [words(&[32, 3]), longs(&[offset, iova, size])].concat()
}

/// The card is there for a client, whatever others have done.
fn check(card: &VirtualCard) {
    let mut client = Client::greeted(card);
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.read(0, 0, 4), 0x4d57_4952u32.to_le_bytes());
}

#[test]
fn a_client_finds_a_pci_device() {
    let dir = tempfile::tempdir().expect("dir");
    let card = serve(dir.path());
    let mut client = Client::greeted(&card);
    assert_eq!(
        client.call(GET_INFO, &words(&[16, 0, 0, 0]), &[]),
        Ok(words(&[16, 3, 9, 5]))
    );
    let sizes = [0u32, 1, 4, 7].map(|index| {
        let ask = words(&[32, 0, index, 0, 0, 0, 0, 0]);
        client.call(GET_REGION_INFO, &ask, &[]).expect("info")[16]
    });
    assert_eq!(sizes, [0, 0, 0, 0], "low bytes of 4096 and 256");
    let info = client.call(GET_REGION_INFO, &words(&[32, 0, 0, 0, 0, 0, 0, 0]), &[]);
    assert_eq!(info.expect("info"), words(&[32, 3, 0, 0, 4096, 0, 0, 0]));
    let info = client
        .call(GET_IRQ_INFO, &words(&[16, 0, 2, 0]), &[])
        .expect("info");
    assert_eq!(info, words(&[16, 1, 2, 1]));
    assert_eq!(
        client.call(GET_REGION_INFO, &words(&[32, 0, 9, 0]), &[]),
        Err(22)
    );

    assert_eq!(client.read(0, 0, 4), [0xff; 4], "memory space is off");
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.read(0, 0, 4), 0x4d57_4952u32.to_le_bytes());
    assert_eq!(client.read(0, 0x10, 8)[..4], 6400u32.to_le_bytes());
    client.write(0, 0xa0, &0x5000u32.to_le_bytes());
    assert_eq!(client.read(0, 0xa0, 4), 0x5000u32.to_le_bytes());
    for (region, offset, len) in [
        (0, 1, 4),
        (0, 0, 3),
        (0, 4096, 4),
        (9, 0, 4),
        (0, u64::MAX, 4),
    ] {
        assert_eq!(client.read(region, offset, len), vec![0xff; len as usize]);
    }
    assert_eq!(client.call(RESET, &[], &[]), Ok(vec![]));
    assert_eq!(client.read(CONFIG, 4, 2), [0, 0]);
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.read(0, 0xa0, 4), [0; 4]);
}

#[test]
fn dma_and_interrupts_reach_the_client() {
    let dir = tempfile::tempdir().expect("dir");
    let card = serve(dir.path());
    let mut client = Client::greeted(&card);
    client.write(CONFIG, 4, &[6, 0]);
    let (file, map) = memory(2 * 16384);
    let message = map_message(16384, 0x4000_0000, 16384);
    assert_eq!(
        client.call(DMA_MAP, &message, &[file.as_raw_fd()]),
        Ok(vec![])
    );
    assert!(
        client.call(DMA_MAP, &message, &[file.as_raw_fd()]).is_err(),
        "twice"
    );
    assert_eq!(
        client.call(DMA_MAP, &map_message(0, 0, 4096), &[]),
        Ok(vec![]),
        "ignored"
    );
    let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("eventfd");
    let irqs = words(&[20, 0x24, 2, 0, 1]);
    assert_eq!(
        client.call(SET_IRQS, &irqs, &[event.as_fd().as_raw_fd()]),
        Ok(vec![])
    );
    for (register, value) in [
        (0xa0u64, 0x4000_0000u32),
        (0xa4, 0),
        (0xa8, 2),
        (0xac, 12),
        (0xbc, 1_000_000),
        (0x88, 1),
        (0x80, 1),
    ] {
        client.write(0, register, &value.to_le_bytes());
    }
    let line = card.line(Port::A).expect("a line");
    (0..8).for_each(|n| line.send(frame(n, 100)).expect("send"));
    card.wait_quiescent(Duration::from_secs(10))
        .expect("quiescent");
    assert!(event.read().is_ok_and(|count| count >= 1), "told");
    let mut head = [0; 8];
    // SAFETY: inside the map, which nobody holds a reference to.
    unsafe { std::ptr::copy_nonoverlapping(map.as_ptr().add(16384), head.as_mut_ptr(), 8) };
    assert_eq!(head[..6], *b"MWB1\x02\0");
    assert!(
        client
            .call(
                DMA_UNMAP,
                &[words(&[24, 0]), longs(&[0x4000_0000, 4096])].concat(),
                &[]
            )
            .is_err()
    );
    let unmap = [words(&[24, 0]), longs(&[0x4000_0000, 16384])].concat();
    assert_eq!(client.call(DMA_UNMAP, &unmap, &[]), Ok(unmap.clone()));
    (0..8).for_each(|n| line.send(frame(n, 100)).expect("send"));
    card.wait_quiescent(Duration::from_secs(10))
        .expect("DMA into nothing does not hang the card");
    assert_eq!(
        card.line(Port::B)
            .into_iter()
            .flat_map(|l| std::iter::from_fn(move || l.try_receive()))
            .count(),
        16
    );
}

#[test]
fn a_second_client_is_refused_and_the_first_unharmed() {
    let dir = tempfile::tempdir().expect("dir");
    let card = serve(dir.path());
    let mut first = Client::greeted(&card);
    first.write(CONFIG, 4, &[6, 0]);
    let mut second = Client::connect(&card);
    assert_eq!(second.greet(), Err(16), "EBUSY");
    assert!(second.is_closed());
    let mut silent: Vec<_> = (0..20).map(|_| Client::connect(&card)).collect();
    assert_eq!(first.read(0, 0, 4), 0x4d57_4952u32.to_le_bytes());
    silent
        .iter_mut()
        .for_each(|client| assert!(client.is_closed()));
    assert_eq!(first.read(CONFIG, 4, 2), [6, 0]);
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    check(&card);
}

#[test]
fn a_client_that_goes_leaves_a_clean_card() {
    let dir = tempfile::tempdir().expect("dir");
    let card = serve(dir.path());
    let mut client = Client::greeted(&card);
    client.write(CONFIG, 4, &[6, 0]);
    client.write(0, 0xa0, &0x5000u32.to_le_bytes());
    let (file, _map) = memory(4096);
    client
        .call(DMA_MAP, &map_message(0, 0, 4096), &[file.as_raw_fd()])
        .expect("map");
    drop(client);
    std::thread::sleep(Duration::from_millis(200));
    let mut client = Client::greeted(&card);
    assert_eq!(client.read(CONFIG, 4, 2), [0, 0]);
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.read(0, 0xa0, 4), [0; 4]);
    client
        .call(DMA_MAP, &map_message(0, 0, 4096), &[file.as_raw_fd()])
        .expect("free again");
}

#[test]
fn hostile_messages_close_their_own_connection_alone() {
    let dir = tempfile::tempdir().expect("dir");
    let card = serve(dir.path());
    let header =
        |command: u16, size: u32, flags: u32| words(&[u32::from(command) << 16, size, flags, 0]);
    // Sizes that lie, a reply, no greeting first.
    for bytes in [
        header(VERSION, 0, 0),
        header(VERSION, 15, 0),
        header(VERSION, u32::MAX, 0),
        header(VERSION, 5000, 0),
        header(VERSION, 16, 1),
        header(READ, 16, 0),
        vec![0xff; 100],
    ] {
        let mut client = Client::connect(&card);
        client.0.write_all(&bytes).expect("send");
        assert!(client.is_closed(), "{bytes:?}");
        check(&card);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Half a message, and gone.
    let mut client = Client::greeted(&card);
    client
        .0
        .write_all(&header(READ, 32, 0)[..10])
        .expect("send");
    drop(client);
    std::thread::sleep(Duration::from_millis(50));
    check(&card);
    std::thread::sleep(Duration::from_millis(50));

    let mut client = Client::greeted(&card);
    // Every command with every short body: an error, or at least an answer.
    for command in 0..20 {
        for len in 0..40 {
            let _ = client.call(command, &vec![0xff; len], &[]);
        }
    }
    let ask = |count: u32| [longs(&[0]), words(&[0, count])].concat();
    assert!(client.call(READ, &ask(u32::MAX), &[]).is_err());
    assert!(client.call(READ, &ask(4097), &[]).is_err());
    assert!(client.call(WRITE, &ask(4), &[]).is_err(), "no data");
    assert!(client.call(WRITE, &ask(u32::MAX), &[]).is_err());
    let (file, _map) = memory(4096);
    for (offset, iova, size) in [
        (0, 0, 0),
        (0, u64::MAX, 4096),
        (0, 0, u64::MAX),
        (0, 0, 4097),
        (4096, 0, 4096),
        (u64::MAX, 0, 4096),
        (1, 0, 4096),
    ] {
        let mapped = client.call(
            DMA_MAP,
            &map_message(offset, iova, size),
            &[file.as_raw_fd()],
        );
        assert!(mapped.is_err(), "{offset} {iova} {size}");
    }
    let socket = UnixStream::pair().expect("pair");
    let odd = [socket.0.as_raw_fd(), std::io::stdin().as_raw_fd()];
    assert!(
        client
            .call(DMA_MAP, &map_message(0, 0, 4096), &odd[..1])
            .is_err()
    );
    for irqs in [
        [20, 0x24, 2, 0, 2],
        [20, 0x24, 2, 1, 1],
        [20, 0x24, 99, 0, 1],
        [20, 0x24, 2, 0, 1],
        [20, 0x21, 2, u32::MAX, 1],
        [20, 0xfff, 2, 0, 1],
    ] {
        let set = client.call(SET_IRQS, &words(&irqs), &odd[..1]);
        assert!(set.is_err(), "{irqs:?}");
    }
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(client.read(0, 0, 4), 0x4d57_4952u32.to_le_bytes());
    // More descriptors than a message may have.
    let files: Vec<File> = (0..30).map(|_| file.try_clone().expect("clone")).collect();
    let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    assert_eq!(
        client.call(DMA_MAP, &map_message(0, 0, 4096), &fds),
        Err(u32::MAX)
    );
    std::thread::sleep(Duration::from_millis(50));
    check(&card);
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("card");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
    assert!(path.exists(), "stale");
    let card = serve(dir.path());
    check(&card);
    let config = Config {
        socket: Some(path.clone()),
        ..Config::default()
    };
    assert!(matches!(
        VirtualCard::spawn(config).err(),
        Some(Error::SocketInUse(_))
    ));
    check(&card);
    drop(card);
    assert!(!path.exists(), "removed");
    std::fs::write(&path, "precious").expect("write");
    let config = Config {
        socket: Some(path.clone()),
        ..Config::default()
    };
    assert!(matches!(
        VirtualCard::spawn(config).err(),
        Some(Error::NotASocket(_))
    ));
    assert!(path.exists());
}
