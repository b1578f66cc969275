// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client against servers that hang, lie and break off.

use super::*;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;
use vfio_bindings::bindings::vfio::VFIO_DEVICE_FLAGS_PCI;

const SHORT: Duration = Duration::from_millis(150);

/// What a server does with a request: its answer, or `None` to say nothing.
type Answer = Box<dyn FnMut(u16, u16, &[u8]) -> Option<Vec<u8>> + Send>;

struct Server {
    path: PathBuf,
    _dir: tempfile::TempDir,
    thread: JoinHandle<()>,
}

fn message(id: u16, command: u16, flags: u32, error: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [id.to_ne_bytes(), command.to_ne_bytes()].concat();
    bytes.extend(words(&[(HEADER + body.len()) as u32, flags, error]));
    bytes.extend(body);
    bytes
}

/// An answer as a good server with BAR 0 and configuration space gives it.
fn good(id: u16, command: u16, body: &[u8]) -> Vec<u8> {
    let answer = match command {
        command::VERSION => [&[0, 0, 1, 0][..], b"{}\0"].concat(),
        command::DEVICE_GET_INFO => words(&[16, VFIO_DEVICE_FLAGS_PCI, 9, 5]),
        command::DEVICE_GET_REGION_INFO => {
            let index = u32_at(body, 8);
            let size = match index {
                0 => 4096,
                CONFIG => 256,
                _ => 0,
            };
            words(&[32, 3, index, 0, size, 0, 0, 0])
        }
        command::REGION_READ => {
            let count = u32_at(body, 12) as usize;
            [&body[..16], &vec![0x5a; count][..]].concat()
        }
        command::REGION_WRITE => body[..16].to_vec(),
        _ => Vec::new(),
    };
    message(id, command, REPLY, 0, &answer)
}

fn serve(mut answer: Answer) -> Server {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("card.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut header = [0; HEADER];
        while stream.read_exact(&mut header).is_ok() {
            let mut body = vec![0; u32_at(&header, 4) as usize - HEADER];
            stream.read_exact(&mut body).expect("body");
            let id = u16::from_ne_bytes([header[0], header[1]]);
            let command = u16::from_ne_bytes([header[2], header[3]]);
            if let Some(reply) = answer(id, command, &body) {
                if reply.is_empty() {
                    return;
                }
                let _ = stream.write_all(&reply);
            }
        }
    });
    Server {
        path,
        _dir: dir,
        thread,
    }
}

fn connect(server: &Server) -> Result<VfioUser> {
    VfioUser::connect_within(&server.path, SHORT, SHORT)
}

fn refusal(answer: Answer) -> String {
    let server = serve(answer);
    let start = Instant::now();
    let error = connect(&server).err().expect("refused");
    assert!(start.elapsed() < 10 * SHORT, "bounded");
    server.thread.join().expect("server");
    let text = error.to_string();
    assert!(!text.contains('\n'));
    text
}

/// A card whose server answers well until register 0x80 is touched, and then by `answer`.
fn then(mut answer: Answer) -> (Server, VfioUser) {
    let server = serve(Box::new(move |id, command, body| {
        let trap = matches!(command, command::REGION_READ | command::REGION_WRITE)
            && u64_at(body, 0) == 0x80;
        if trap {
            answer(id, command, body)
        } else {
            Some(good(id, command, body))
        }
    }));
    let card = connect(&server).expect("connect");
    (server, card)
}

#[test]
fn a_good_server_is_used() {
    let (_server, card) = then(Box::new(|id, command, body| Some(good(id, command, body))));
    assert_eq!((card.region_size(0), card.region_size(7)), (4096, 256));
    assert_eq!(card.region_size(99), 0);
    let mut word = [0; 4];
    card.read(0, 0x80, &mut word).expect("read");
    assert_eq!(word, [0x5a; 4]);
    card.write(0, 0x80, &word).expect("write");
    card.reset().expect("reset");
    let event = EventFd::new(0).expect("event");
    card.set_msix(&[event]).expect("msix");
    card.set_msix(&[]).expect("msix off");
    let e = card.read(0, 4094, &mut word).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
    let e = card.read(0, u64::MAX, &mut word).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
}

#[test]
fn no_server_is_said_in_a_sentence() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("none.sock");
    let text = VfioUser::connect(&path).err().expect("none").to_string();
    assert!(text.starts_with("there is no card at "), "{text}");
    drop(UnixListener::bind(&path).expect("bind"));
    let text = VfioUser::connect(&path).err().expect("dead").to_string();
    assert!(text.starts_with("nothing serves the socket "), "{text}");
}

#[test]
fn a_mute_server_costs_a_bounded_time() {
    let text = refusal(Box::new(|_, _, _| None));
    assert!(text.contains("did not answer within 150 ms"), "{text}");

    let (_server, card) = then(Box::new(|_, _, _| None));
    let mut word = [0; 4];
    let start = Instant::now();
    let e = card.read(0, 0x80, &mut word).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    // The late answer must never be taken for that of a later request.
    let e = card.read(0, 0, &mut word).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::BrokenPipe);
    assert!(start.elapsed() < 3 * SHORT);
}

#[test]
fn a_server_that_trickles_cannot_stretch_the_time() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("card.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        for byte in message(0, command::VERSION, REPLY, 0, &[0; 1000]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(SHORT / 10);
        }
    });
    let start = Instant::now();
    let error = VfioUser::connect_within(&path, SHORT, SHORT).err();
    assert!(error.is_some() && start.elapsed() < 4 * SHORT);
    thread.join().expect("server");
}

#[test]
fn a_busy_card_is_in_use() {
    let server = serve(Box::new(|id, command, _| {
        let busy = libc::EBUSY as u32;
        Some(message(id, command, REPLY | ERROR, busy, &[]))
    }));
    let e = connect(&server).err().expect("busy");
    assert!(matches!(e, Error::InUse(_)), "{e}");
}

#[test]
fn a_server_that_closes_or_lies_is_refused() {
    let text = refusal(Box::new(|_, _, _| Some(Vec::new())));
    assert!(text.contains("closed the connection"), "{text}");
    let text = refusal(Box::new(|id, command, _| {
        Some(message(id, command, REPLY, 0, &[9, 0, 0, 0]))
    }));
    assert!(text.contains("major version is 9"), "{text}");
    let text = refusal(Box::new(|id, command, _| {
        Some(message(id, command, REPLY, 0, &[0]))
    }));
    assert!(text.contains("cut off"), "{text}");
    let text = refusal(Box::new(|id, command, body| {
        Some(match command {
            command::DEVICE_GET_INFO => {
                let info = words(&[16, VFIO_DEVICE_FLAGS_PCI, u32::MAX, 5]);
                message(id, command, REPLY, 0, &info)
            }
            _ => good(id, command, body),
        })
    }));
    assert!(text.contains("claims 4294967295 regions"), "{text}");
}

#[test]
fn an_error_reply_is_an_error_and_the_connection_goes_on() {
    let (_server, card) = then(Box::new(|id, command, _| {
        let denied = libc::EACCES as u32;
        Some(message(id, command, REPLY | ERROR, denied, &[]))
    }));
    let mut word = [0; 4];
    let e = card.read(0, 0x80, &mut word).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EACCES));
    card.read(0, 0, &mut word).expect("goes on");
    // Without a number it is an error all the same.
    let (_server, card) = then(Box::new(|id, command, _| {
        Some(message(id, command, REPLY | ERROR, 0, &[]))
    }));
    let e = card.write(0, 0x80, &word).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EIO));
}

#[test]
fn broken_replies_end_the_connection() {
    let cases: Vec<(&str, Answer)> = vec![
        (
            "where the reply to",
            Box::new(|id, command, body| Some(good(id.wrapping_add(1), command, body))),
        ),
        (
            "where the reply to",
            Box::new(|id, command, body| Some(message(id, command, 0, 0, body))),
        ),
        (
            "claims 4294967295 bytes",
            Box::new(|id, command, _| {
                let mut bytes = message(id, command, REPLY, 0, &[]);
                bytes[4..8].fill(0xff);
                Some(bytes)
            }),
        ),
        (
            "claims 3 bytes",
            Box::new(|id, command, _| {
                let mut bytes = message(id, command, REPLY, 0, &[]);
                bytes[4] = 3;
                Some(bytes)
            }),
        ),
        (
            "closed the connection",
            Box::new(|_, _, _| Some(Vec::new())),
        ),
    ];
    for (why, answer) in cases {
        let (_server, card) = then(answer);
        let mut word = [0; 4];
        let text = card.read(0, 0x80, &mut word).unwrap_err().to_string();
        assert!(text.contains(why), "{text}");
        let again = card.read(0, 0, &mut word).unwrap_err();
        assert!(again.to_string().contains(why), "{again}");
    }
}

#[test]
fn a_short_read_is_no_data() {
    let (_server, card) = then(Box::new(|id, command, body| {
        Some(message(id, command, REPLY, 0, &body[..16]))
    }));
    let mut word = [0; 4];
    let e = card.read(0, 0x80, &mut word).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidData);
}
