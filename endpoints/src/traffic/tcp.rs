// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Built-in TCP traffic: real sockets of the hosts, opened in order, used concurrently, every
//! byte verified by its receiver.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use super::seconds;
use crate::host::congestion_control_refused;
use crate::payload::Stream;
use crate::{Error, Hosts, Port};

/// How often a blocked socket looks whether it should give up.
const TICK: Duration = Duration::from_millis(50);
/// Threads of a transfer need little: their buffers are on the heap.
const STACK: usize = 256 << 10;

/// Which way the bytes of a connection go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the host that opens the connection.
    #[default]
    Send,
    /// To the host that opens the connection.
    Receive,
    /// Both ways at once, as many bytes each way.
    Both,
}

/// TCP connections that carry a number of bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpTraffic {
    /// The host that opens the connections.
    pub from: Port,
    /// The host that listens.
    pub to: Port,
    /// Bytes of each connection, in each direction that is used.
    pub bytes: u64,
    /// Number of connections. All are opened, in order, before any byte is sent.
    pub connections: u16,
    /// Destination port.
    pub port: u16,
    /// Source port of connection 0, the next of connection 1 and so on; by default the system's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Congestion control of both ends; by default each host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Seed of the payload.
    pub seed: u64,
    /// Send small segments at once (TCP_NODELAY).
    pub no_delay: bool,
    /// Bytes that are handed to the socket at a time.
    pub write_size: u32,
    /// Seconds until what is not finished has failed.
    #[serde(with = "seconds")]
    pub timeout: Duration,
}

impl Default for TcpTraffic {
    fn default() -> TcpTraffic {
        TcpTraffic {
            from: Port::A,
            to: Port::B,
            bytes: 1_000_000,
            connections: 1,
            port: 5001,
            source_port: None,
            congestion_control: None,
            direction: Direction::Send,
            seed: 0,
            no_delay: false,
            write_size: 64 << 10,
            timeout: Duration::from_secs(60),
        }
    }
}

/// What became of the connections, in their order.
#[derive(Debug, Clone, Serialize)]
pub struct TcpReport {
    /// One for each connection.
    pub connections: Vec<ConnectionReport>,
    /// From before the first SYN until everything had ended.
    pub duration_ns: u64,
}

impl TcpReport {
    /// Whether every byte of every connection arrived as it was sent.
    pub fn completed(&self) -> bool {
        self.connections.iter().all(ConnectionReport::completed)
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionReport {
    /// Its number, from 0, in order of opening.
    pub connection: u16,
    /// The end that opened it.
    pub local: SocketAddr,
    /// The end that listened.
    pub remote: SocketAddr,
    /// From before its SYN until it was established at the opener, if it was.
    pub opened_ns: Option<u64>,
    /// One for each direction that was used.
    pub streams: Vec<StreamReport>,
    /// The kernel's view at the opener when it ended.
    pub opener: Option<TcpInfo>,
    /// The kernel's view at the listener when it ended.
    pub listener: Option<TcpInfo>,
    /// What went wrong at either end.
    pub errors: Vec<String>,
}

impl ConnectionReport {
    /// Whether every byte arrived as it was sent and both ends closed in order.
    pub fn completed(&self) -> bool {
        self.errors.is_empty()
            && self
                .streams
                .iter()
                .all(|stream| matches!(stream.payload, Payload::Verified))
    }
}

/// What became of one direction of a connection.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// The sender.
    pub from: Port,
    /// The receiver.
    pub to: Port,
    /// Bytes that the receiver got.
    pub bytes: u64,
    /// From the first byte's way into the sender's socket to the last one's out of the receiver's.
    pub duration_ns: u64,
    /// Bytes over duration.
    pub goodput_bits_per_s: u64,
    /// Whether they were the bytes that were sent.
    pub payload: Payload,
}

/// The receiver's judgement of what it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result")]
pub enum Payload {
    /// All of it, byte by byte.
    Verified,
    /// Right as far as it came, but not all came.
    Incomplete,
    /// Wrong, or more than was sent.
    Differs {
        /// Offset of the first wrong byte.
        offset: u64,
    },
}

/// What the kernel says about one end of a connection (TCP_INFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    /// Both directions are closed and acknowledged.
    pub closed: bool,
    /// Segments that were sent again.
    pub retransmitted_segments: u32,
    /// Payload bytes that were sent again.
    pub retransmitted_bytes: u64,
    /// Retransmission timeouts (kernel 6.7 or later, else 0).
    pub timeouts: u16,
    /// Payload bytes that were sent, retransmissions among them.
    pub sent_bytes: u64,
    /// Payload bytes that the other end acknowledged.
    pub acknowledged_bytes: u64,
    /// Segments that were sent.
    pub segments_out: u32,
    /// Segments that came.
    pub segments_in: u32,
    /// Segments with payload that were sent.
    pub data_segments_out: u32,
    /// Segments with payload that came.
    pub data_segments_in: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Its variation.
    pub rtt_variation_us: u32,
    /// Least round-trip time.
    pub least_rtt_us: u32,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Slow start threshold, in segments; 2³¹ − 1 before the first loss.
    pub slow_start_threshold: u32,
    /// Largest segment that was sent.
    pub send_mss: u32,
    /// Largest segment that came.
    pub receive_mss: u32,
    /// Path MTU.
    pub path_mtu: u32,
    /// Segments that were delivered with a CE mark.
    pub delivered_ce: u32,
    /// Reports that a segment came twice (DSACK).
    pub duplicates_reported: u32,
    /// Times that reordering was seen.
    pub reorderings: u32,
    /// Segments that came out of order.
    pub out_of_order_in: u32,
    /// Both ends use timestamps.
    pub timestamps: bool,
    /// Both ends use selective acknowledgements.
    pub selective_acknowledgements: bool,
    /// Both ends use explicit congestion notification.
    pub ecn: bool,
}

impl TcpInfo {
    /// The last view of a connection: when it has closed in order, after all that was sent has been
    /// acknowledged.
    fn at_end(stream: &TcpStream, in_order: bool, patience: Patience<'_>) -> io::Result<TcpInfo> {
        const STEP: Duration = Duration::from_millis(1);
        loop {
            let info = TcpInfo::of(stream)?;
            if info.closed || !in_order || patience.check().is_err() {
                return Ok(info);
            }
            thread::sleep(STEP);
        }
    }

    fn of(stream: &TcpStream) -> io::Result<TcpInfo> {
        const CLOSED: u8 = 7;
        const TIMESTAMPS: u8 = 1;
        const SACK: u8 = 2;
        const ECN: u8 = 8;
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `info`, which lives across the call.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: plain integers, zeroed, and overwritten as far as this kernel knows them.
        let info = unsafe { info.assume_init() };
        let option = |bit| info.tcpi_options & bit != 0;
        Ok(TcpInfo {
            closed: info.tcpi_state == CLOSED,
            retransmitted_segments: info.tcpi_total_retrans,
            retransmitted_bytes: info.tcpi_bytes_retrans,
            timeouts: info.tcpi_total_rto,
            sent_bytes: info.tcpi_bytes_sent,
            // The kernel counts SYN and FIN in; what was sent is the most there can be.
            acknowledged_bytes: info
                .tcpi_bytes_acked
                .min(info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans)),
            segments_out: info.tcpi_segs_out,
            segments_in: info.tcpi_segs_in,
            data_segments_out: info.tcpi_data_segs_out,
            data_segments_in: info.tcpi_data_segs_in,
            rtt_us: info.tcpi_rtt,
            rtt_variation_us: info.tcpi_rttvar,
            least_rtt_us: info.tcpi_min_rtt,
            rto_us: info.tcpi_rto,
            congestion_window: info.tcpi_snd_cwnd,
            slow_start_threshold: info.tcpi_snd_ssthresh,
            send_mss: info.tcpi_snd_mss,
            receive_mss: info.tcpi_rcv_mss,
            path_mtu: info.tcpi_pmtu,
            delivered_ce: info.tcpi_delivered_ce,
            duplicates_reported: info.tcpi_dsack_dups,
            reorderings: info.tcpi_reord_seen,
            out_of_order_in: info.tcpi_rcv_ooopack,
            timestamps: option(TIMESTAMPS),
            selective_acknowledgements: option(SACK),
            ecn: option(ECN),
        })
    }
}

/// When to give up.
#[derive(Clone, Copy)]
struct Patience<'a> {
    deadline: Instant,
    timeout: Duration,
    cancel: &'a AtomicBool,
}

impl Patience<'_> {
    fn check(&self) -> io::Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "cancelled"));
        }
        if Instant::now() >= self.deadline {
            let message = format!("not finished after {} s", self.timeout.as_secs_f64());
            return Err(io::Error::new(ErrorKind::TimedOut, message));
        }
        Ok(())
    }

    /// Repeats a system call that was interrupted or has waited a tick, until patience is over.
    fn persist<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match call() {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    self.check()?;
                }
                result => return result,
            }
        }
    }
}

/// What one end does with its connection.
#[derive(Clone, Copy)]
struct Role {
    sends: Option<Stream>,
    receives: Option<Stream>,
    bytes: u64,
    write_size: usize,
}

/// What one end saw of its connection.
#[derive(Debug, Default)]
struct Seen {
    first_sent: Option<Instant>,
    last_received: Option<Instant>,
    received: u64,
    wrong_at: Option<u64>,
    info: Option<TcpInfo>,
    errors: Vec<String>,
}

impl TcpTraffic {
    /// Opens the connections, moves the bytes, closes. Returns what became of each connection, or
    /// an error if it could not even begin; then no packet was sent.
    pub fn run(&self, hosts: &Hosts, cancel: &AtomicBool) -> Result<TcpReport, Error> {
        self.check()?;
        let (local, remote) = hosts.route(self.from, self.to).ok_or_else(|| {
            let (from, to) = (self.from, self.to);
            Error::Traffic(format!(
                "hosts {from} and {to} have no addresses of the same family"
            ))
        })?;
        let remote = SocketAddr::new(remote, self.port);
        let listener = hosts
            .at(self.to)
            .run_in(|| self.listen(remote))?
            .map_err(|error| {
                self.refused(error, &format!("listen on {remote} at host {}", self.to))
            })?;
        let openers = hosts.at(self.from).run_in(|| {
            (0..self.connections)
                .map(|number| {
                    let port = self.source_port.map_or(0, |first| first + number);
                    self.opener(SocketAddr::new(local, port))
                })
                .collect::<io::Result<Vec<(Socket, SocketAddr)>>>()
        })?;
        let openers = openers.map_err(|error| {
            self.refused(
                error,
                &format!("open sockets of {local} at host {}", self.from),
            )
        })?;

        let begun = Instant::now();
        let deadline = begun + self.timeout;
        let patience = Patience {
            deadline,
            timeout: self.timeout,
            cancel,
        };
        let mut connections: Vec<ConnectionReport> = Vec::with_capacity(openers.len());
        let mut opened = Vec::with_capacity(openers.len());
        for (number, (socket, local)) in (0..).zip(openers) {
            let mut report = ConnectionReport {
                connection: number,
                local,
                remote,
                opened_ns: None,
                streams: Vec::new(),
                opener: None,
                listener: None,
                errors: Vec::new(),
            };
            let asked = Instant::now();
            match connect(&socket, remote, patience) {
                Ok(()) => {
                    report.opened_ns = Some(nanoseconds(asked.elapsed()));
                    opened.push((number, local, TcpStream::from(socket)));
                }
                Err(error) => report.errors.push(format!("opening: {error}")),
            }
            connections.push(report);
        }

        for (number, opener, acceptor) in self.transfer(&listener, &opened, patience) {
            self.conclude(&mut connections[usize::from(number)], opener, acceptor);
        }
        for report in &mut connections {
            if report.streams.is_empty() {
                self.conclude(report, Seen::default(), Seen::default());
            }
        }
        Ok(TcpReport {
            connections,
            duration_ns: nanoseconds(begun.elapsed()),
        })
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |message: &str| Err(Error::Traffic(message.to_owned()));
        if self.from == self.to {
            return refuse("the hosts that open and listen are the same");
        }
        if self.connections == 0 {
            return refuse("it needs a connection at least");
        }
        if self.port == 0 || self.source_port == Some(0) {
            return refuse("ports are numbers from 1");
        }
        if self
            .source_port
            .is_some_and(|first| first.checked_add(self.connections - 1).is_none())
        {
            return refuse("the source ports go beyond 65535");
        }
        if self.write_size == 0 {
            return refuse("a write has a byte at least");
        }
        if Instant::now().checked_add(self.timeout).is_none() {
            return refuse("the timeout is beyond all time");
        }
        Ok(())
    }

    fn refused(&self, error: io::Error, what: &str) -> Error {
        match &self.congestion_control {
            Some(name) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM)) => {
                Error::Traffic(congestion_control_refused(name, &error))
            }
            _ => Error::Traffic(format!("cannot {what}: {error}")),
        }
    }

    /// A socket with everything set that has to be before a SYN.
    fn socket(&self, bound: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(bound), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if let Some(name) = &self.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        socket.set_tcp_nodelay(self.no_delay)?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(TICK))?;
        socket.bind(&bound.into())?;
        Ok(socket)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = self.socket(address)?;
        socket.listen(i32::from(self.connections).max(1))?;
        Ok(socket)
    }

    fn opener(&self, address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
        let socket = self.socket(address)?;
        let local = socket.local_addr()?.as_socket();
        Ok((
            socket,
            local.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
        ))
    }

    fn role(&self, connection: u16, opens: bool) -> Role {
        let stream = |from_opener| Stream::new(self.seed, connection.into(), from_opener);
        let sends = match self.direction {
            Direction::Send => opens,
            Direction::Receive => !opens,
            Direction::Both => true,
        };
        let receives = self.direction == Direction::Both || !sends;
        Role {
            sends: sends.then(|| stream(opens)),
            receives: receives.then(|| stream(!opens)),
            bytes: self.bytes,
            write_size: self.write_size as usize,
        }
    }

    /// Moves the bytes of all connections at once.
    fn transfer(
        &self,
        listener: &Socket,
        opened: &[(u16, SocketAddr, TcpStream)],
        patience: Patience<'_>,
    ) -> Vec<(u16, Seen, Seen)> {
        let accepted: Mutex<HashMap<u16, Seen>> = Mutex::default();
        let keep = |number, seen| {
            accepted
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .insert(number, seen);
        };
        let openers: Vec<(u16, Seen)> = thread::scope(|scope| {
            let threads: Vec<_> = opened
                .iter()
                .map(|(number, _, stream)| {
                    let role = self.role(*number, true);
                    let thread = thread::Builder::new()
                        .stack_size(STACK)
                        .spawn_scoped(scope, move || serve(stream, role, patience));
                    (*number, thread)
                })
                .collect();
            let mut waiting: HashMap<SocketAddr, u16> = opened
                .iter()
                .map(|(number, local, _)| (*local, *number))
                .collect();
            while !waiting.is_empty() {
                let stream = match patience.persist(|| listener.accept()) {
                    Ok((socket, _)) => TcpStream::from(socket),
                    Err(error) => {
                        for number in waiting.into_values() {
                            keep(number, failed(format!("accepting: {error}")));
                        }
                        break;
                    }
                };
                let Some(number) = stream
                    .peer_addr()
                    .ok()
                    .and_then(|peer| waiting.remove(&peer))
                else {
                    continue;
                };
                let role = self.role(number, false);
                let thread =
                    thread::Builder::new()
                        .stack_size(STACK)
                        .spawn_scoped(scope, move || {
                            let prepared = stream
                                .set_read_timeout(Some(TICK))
                                .and_then(|()| stream.set_write_timeout(Some(TICK)));
                            match prepared {
                                Ok(()) => keep(number, serve(&stream, role, patience)),
                                Err(error) => keep(number, failed(error.to_string())),
                            }
                        });
                if let Err(error) = thread {
                    keep(number, failed(format!("cannot start a thread: {error}")));
                }
            }
            threads
                .into_iter()
                .map(|(number, thread)| {
                    let seen = match thread {
                        Ok(thread) => thread
                            .join()
                            .unwrap_or_else(|_| failed("its thread panicked".to_owned())),
                        Err(error) => failed(format!("cannot start a thread: {error}")),
                    };
                    (number, seen)
                })
                .collect()
        });
        let mut accepted = accepted.into_inner().unwrap_or_else(|e| e.into_inner());
        openers
            .into_iter()
            .map(|(number, seen)| (number, seen, accepted.remove(&number).unwrap_or_default()))
            .collect()
    }

    /// Makes the report of a connection from what its ends saw.
    fn conclude(&self, report: &mut ConnectionReport, opener: Seen, listener: Seen) {
        let stream = |from, to, sender: &Seen, receiver: &Seen| {
            let duration_ns = match (sender.first_sent, receiver.last_received) {
                (Some(first), Some(last)) => nanoseconds(last.saturating_duration_since(first)),
                _ => 0,
            };
            let bits = u128::from(receiver.received) * 8 * 1_000_000_000;
            let rate = bits.checked_div(duration_ns.into()).unwrap_or(0);
            StreamReport {
                from,
                to,
                bytes: receiver.received,
                duration_ns,
                goodput_bits_per_s: u64::try_from(rate).unwrap_or(u64::MAX),
                payload: match receiver.wrong_at {
                    Some(offset) => Payload::Differs { offset },
                    None if receiver.received < self.bytes => Payload::Incomplete,
                    None => Payload::Verified,
                },
            }
        };
        if self.direction != Direction::Receive {
            report
                .streams
                .push(stream(self.from, self.to, &opener, &listener));
        }
        if self.direction != Direction::Send {
            report
                .streams
                .push(stream(self.to, self.from, &listener, &opener));
        }
        report.opener = opener.info;
        report.listener = listener.info;
        for (port, errors) in [(self.from, opener.errors), (self.to, listener.errors)] {
            report.errors.extend(
                errors
                    .into_iter()
                    .map(|error| format!("host {port}: {error}")),
            );
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn failed(error: String) -> Seen {
    Seen {
        errors: vec![error],
        ..Seen::default()
    }
}

/// Connects a socket whose blocking calls wait a tick.
fn connect(socket: &Socket, remote: SocketAddr, patience: Patience<'_>) -> io::Result<()> {
    let remote = SockAddr::from(remote);
    loop {
        match socket.connect(&remote) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINPROGRESS | libc::EALREADY | libc::EINTR)
                ) =>
            {
                patience.check()?;
            }
            // The handshake ended between two calls.
            Err(error) if error.raw_os_error() == Some(libc::EISCONN) => return Ok(()),
            result => return result,
        }
    }
}

/// Plays one end of a connection to its end.
fn serve(stream: &TcpStream, role: Role, patience: Patience<'_>) -> Seen {
    let mut seen = Seen::default();
    let (sent, received) = match (role.sends, role.receives) {
        (Some(sends), Some(receives)) => thread::scope(|scope| {
            let sender = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || {
                    let mut first = None;
                    let result = send(stream, sends, role, patience, &mut first);
                    (result, first)
                });
            let received = receive(stream, Some(receives), role, patience, &mut seen);
            let sent = match sender.map(|sender| sender.join()) {
                Ok(Ok((result, first))) => {
                    seen.first_sent = first;
                    result
                }
                Ok(Err(_)) => Err(io::Error::other("the sending thread panicked")),
                Err(error) => Err(error),
            };
            (sent, received)
        }),
        (Some(sends), None) => {
            let mut first = None;
            let sent = send(stream, sends, role, patience, &mut first);
            seen.first_sent = first;
            let received = if sent.is_ok() {
                receive(stream, None, role, patience, &mut seen)
            } else {
                Ok(())
            };
            (sent, received)
        }
        (None, receives) => {
            let received = receive(stream, receives, role, patience, &mut seen);
            (stream.shutdown(Shutdown::Write), received)
        }
    };
    let sent = sent.map_err(|error| format!("sending: {error}"));
    let received = received.map_err(|error| format!("receiving: {error}"));
    let in_order = sent.is_ok() && received.is_ok();
    match TcpInfo::at_end(stream, in_order, patience) {
        Ok(info) => seen.info = Some(info),
        Err(error) => seen.errors.push(format!("TCP_INFO: {error}")),
    }
    seen.errors
        .extend([sent, received].into_iter().filter_map(Result::err));
    seen
}

/// Sends the whole stream and closes this direction.
fn send(
    mut stream: &TcpStream,
    payload: Stream,
    role: Role,
    patience: Patience<'_>,
    first: &mut Option<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; role.write_size];
    let mut offset = 0;
    while offset < role.bytes {
        let length = (role.bytes - offset).min(role.write_size as u64) as usize;
        let piece = &mut buffer[..length];
        payload.fill(offset, piece);
        first.get_or_insert_with(Instant::now);
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let written = patience.persist(|| stream.write(rest))?;
            rest = &rest[written..];
            patience.check()?;
        }
        offset += length as u64;
    }
    stream.shutdown(Shutdown::Write)
}

/// Receives until the other end closes, and compares with what is expected: `None`, nothing.
fn receive(
    mut stream: &TcpStream,
    payload: Option<Stream>,
    role: Role,
    patience: Patience<'_>,
    seen: &mut Seen,
) -> io::Result<()> {
    const BUFFER: usize = 64 << 10;
    let expected = if payload.is_some() { role.bytes } else { 0 };
    let mut buffer = vec![0; BUFFER];
    let mut right = vec![0; if payload.is_some() { BUFFER } else { 0 }];
    loop {
        let length = patience.persist(|| stream.read(&mut buffer))?;
        if length == 0 {
            break;
        }
        patience.check()?;
        seen.last_received = Some(Instant::now());
        let got = &buffer[..length];
        let due = (length as u64).min(expected.saturating_sub(seen.received)) as usize;
        if let Some(payload) = payload {
            payload.fill(seen.received, &mut right[..due]);
        }
        if seen.wrong_at.is_none() && got != &right[..due] {
            let agree = got
                .iter()
                .zip(&right[..due])
                .take_while(|(got, right)| got == right)
                .count();
            seen.wrong_at = Some(seen.received + agree as u64);
        }
        seen.received += length as u64;
    }
    if seen.received < expected {
        let message = format!(
            "the other end closed after {} of {expected} bytes",
            seen.received
        );
        return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
    }
    Ok(())
}
