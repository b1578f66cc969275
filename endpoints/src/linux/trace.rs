// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host's kernel notes of itself: tracepoints, in the ring buffer of its tracer.
//!
//! The buffer is set up and filled in every case alike but for what is enabled, reading the clock
//! for it takes no time, and it is read out when all else is over: so tracing changes no packet.
//! Events are found in it by the formats that the kernel itself gives, pages by Linux's
//! Documentation/trace/ring-buffer-design.rst and include/linux/ring_buffer.h.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use midwire_trace::inside::{CaState, Event, Moment, State};
use midwire_trace::{Nanos, Port};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of what a kernel can note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// Windows and round-trip time with each segment that comes in, and states of congestion
    /// control.
    TcpProbe,
    /// Segments that are sent again.
    TcpRetransmit,
    /// States of sockets, and what programs send and receive.
    Sockets,
    /// Calls of this function of the kernel, and of all that it calls.
    FunctionGraph(String),
}

impl Trace {
    /// Its tracepoints.
    fn events(&self) -> &'static [&'static str] {
        match self {
            Self::TcpProbe => &["tcp/tcp_probe", "tcp/tcp_cong_state_set"],
            Self::TcpRetransmit => &["tcp/tcp_retransmit_skb", "tcp/tcp_retransmit_synack"],
            Self::Sockets => &[
                "sock/inet_sock_set_state",
                "sock/sock_send_length",
                "sock/sock_recv_length",
            ],
            Self::FunctionGraph(_) => &[],
        }
    }

    /// The function whose calls it follows.
    pub fn function(&self) -> Option<&str> {
        match self {
            Self::FunctionGraph(name) => Some(name),
            _ => None,
        }
    }
}

/// Files in a host's directory: what its first process sets, and what it reads out at the end.
pub(super) const SETTINGS: &str = "trace";
const FORMATS: &str = "trace.formats";
const STATISTICS: &str = "trace.stats";
const PAGES: &str = "trace.pages";
const SYMBOLS: &str = "trace.symbols";
pub(super) const FILES: [&str; 5] = [SETTINGS, FORMATS, STATISTICS, PAGES, SYMBOLS];

/// Of a host's memory the buffer takes one part in so many.
const PART: u32 = 8;

/// What to write into which file of tracefs, a line each.
pub(super) fn settings(traces: &[Trace], memory_mib: u32) -> String {
    let mut text = String::new();
    if !traces.is_empty() {
        let kib = memory_mib * 1024 / PART;
        // What is lost is lost at the end, and counted.
        text += &format!("trace_clock local\noptions/overwrite 0\nbuffer_size_kb {kib}\n");
    }
    for event in traces.iter().flat_map(Trace::events) {
        // A string takes all that is written.
        let _ = writeln!(text, "events/{event}/enable 1");
    }
    let functions: Vec<_> = traces.iter().filter_map(Trace::function).collect();
    if !functions.is_empty() {
        let names = functions.join(" ");
        text += &format!("set_graph_function {names}\ncurrent_tracer function_graph\n");
    }
    text
}

/// The script that reads the buffer out.
pub(super) fn script(traces: &[Trace]) -> String {
    let events: Vec<_> = traces.iter().flat_map(Trace::events).collect();
    let formats = events.iter().map(|event| format!(" events/{event}/format"));
    format!(
        "cd /sys/kernel/tracing\n\
         echo 0 >tracing_on\n\
         cat events/ftrace/funcgraph_*/format{} >/host/{FORMATS}\n\
         cat /proc/kallsyms >/host/{SYMBOLS}\n\
         cat per_cpu/cpu0/stats >/host/{STATISTICS}\n\
         # Its end is waited for in vain.\n\
         timeout 1 dd bs={PAGE} if=per_cpu/cpu0/trace_pipe_raw of=/host/{PAGES} 2>/dev/null\n",
        formats.collect::<String>()
    )
}

/// What a kernel has noted, and how many events it had no room for.
#[derive(Debug, Default)]
pub struct Noted {
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// Likewise.
    pub calls: Vec<Call>,
    /// Events that were lost.
    pub lost: u64,
}

/// A call of a function of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When it began, by the card's time.
    pub time_ns: Nanos,
    /// How many of the calls that are followed it is in.
    pub depth: u64,
    /// Its name.
    pub function: String,
    /// What it took, which is what it waited for and reading the clock; nothing while it goes on.
    pub duration_ns: Option<u64>,
}

/// Reads what the script has left in a host's directory, and removes it. `card_time` is the time
/// of the card for one of the host's.
pub(super) fn read(
    directory: &Path,
    host: Port,
    card_time: impl Fn(u64) -> Nanos,
) -> io::Result<Noted> {
    let formats = Formats::parse(&fs::read_to_string(directory.join(FORMATS))?);
    let statistics = fs::read_to_string(directory.join(STATISTICS))?;
    let symbols = fs::read_to_string(directory.join(SYMBOLS))?;
    let mut calls = Calls::new(&symbols);
    let mut moments = Vec::new();
    for page in fs::read(directory.join(PAGES))?.chunks(PAGE) {
        events(page, |time, data| {
            moments.extend(formats.moment(card_time(time), host, data));
            calls.hear(card_time(time), formats.fields(data));
        })
        .ok_or_else(|| io::Error::other("a page of its trace is not as expected"))?;
    }
    name_ends(&mut moments);
    for name in [FORMATS, STATISTICS, PAGES, SYMBOLS] {
        fs::remove_file(directory.join(name))?;
    }
    let lost = |line: &str| {
        let (name, count) = line.split_once(": ")?;
        let counts = ["overrun", "commit overrun", "dropped events"].contains(&name);
        counts.then(|| count.parse::<u64>().ok())?
    };
    Ok(Noted {
        moments,
        calls: calls.all,
        lost: statistics.lines().filter_map(lost).sum(),
    })
}

const PAGE: usize = 4096;
/// Behind a page's time and the number of its bytes.
const PAGE_HEADER: usize = 16;
/// Of the number of bytes; above it are flags.
const PAGE_BYTES: u64 = (1 << 20) - 1;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the time since the event before.
const DELTA_BITS: u32 = 27;

/// Calls `hear` with time and data of each event of a page. Nothing: it is damaged.
fn events(page: &[u8], mut hear: impl FnMut(u64, &[u8])) -> Option<()> {
    let mut time = u64::from_le_bytes(*page.first_chunk()?);
    let bytes = u64::from_le_bytes(*page.get(8..)?.first_chunk()?) & PAGE_BYTES;
    let mut rest = page
        .get(PAGE_HEADER..)?
        .get(..usize::try_from(bytes).ok()?)?;
    let word = |at: &[u8], n: usize| Some(u32::from_le_bytes(*at.get(4 * n..)?.first_chunk()?));
    while !rest.is_empty() {
        let head = word(rest, 0)?;
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let (from, length) = match kind {
            // Nothing more on this page.
            PADDING if delta == 0 => return Some(()),
            TIME_EXTEND | TIME_STAMP => (8, 0),
            // The length counts its own word.
            0 | PADDING => (8, (word(rest, 1)? as usize).checked_sub(4)?),
            words => (4, 4 * words as usize),
        };
        match kind {
            TIME_EXTEND => time += delta + (u64::from(word(rest, 1)?) << DELTA_BITS),
            TIME_STAMP => time = delta + (u64::from(word(rest, 1)?) << DELTA_BITS),
            _ => time += delta,
        }
        let data = rest.get(from..from + length)?;
        if kind < PADDING {
            hear(time, data);
        }
        rest = &rest[from + length..];
    }
    Some(())
}

/// Where a field lies in an event.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: usize,
    size: usize,
}

/// The events of a kernel.
#[derive(Debug, Default)]
struct Formats(HashMap<u64, (String, HashMap<String, Place>)>);

impl Formats {
    /// From the files `format` of tracefs.
    fn parse(text: &str) -> Self {
        let mut formats = Self::default();
        let (mut name, mut id) = ("", 0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("name: ") {
                name = rest;
            } else if let Some(rest) = line.strip_prefix("ID: ") {
                id = rest.parse().unwrap_or_default();
                formats.0.insert(id, (name.to_owned(), HashMap::new()));
            } else if let Some((name, place)) = field(line)
                && let Some((_, fields)) = formats.0.get_mut(&id)
            {
                fields.insert(name.to_owned(), place);
            }
        }
        formats
    }

    /// Name and fields of an event.
    fn fields<'a>(&'a self, data: &'a [u8]) -> Option<(&'a str, Fields<'a>)> {
        let id = u64::from(u16::from_le_bytes(*data.first_chunk()?));
        let (name, places) = self.0.get(&id)?;
        Some((name, Fields { data, places }))
    }

    /// What an event says; nothing when it is not about TCP.
    fn moment(&self, time: Nanos, host: Port, data: &[u8]) -> Option<Moment> {
        let (name, fields) = self.fields(data)?;
        let event = match name {
            "tcp_probe" => Event::Probe,
            "tcp_cong_state_set" => Event::CaState,
            "tcp_retransmit_skb" => Event::Retransmit,
            "tcp_retransmit_synack" => Event::RetransmitSynack,
            "inet_sock_set_state" => Event::State,
            "sock_send_length" => Event::Send,
            "sock_recv_length" => Event::Receive,
            _ => return None,
        };
        if fields.number("protocol").is_some_and(|p| p != TCP) {
            return None;
        }
        let socket = fields.number("skaddr").or_else(|| fields.number("sk"))?;
        let narrow = |name| fields.number(name).map(|n| n as u32);
        Some(Moment {
            local: fields.end("saddr", "sport"),
            remote: fields.end("daddr", "dport"),
            cwnd: narrow("snd_cwnd"),
            ssthresh: narrow("ssthresh"),
            srtt_us: narrow("srtt"),
            rto_us: narrow("rto"),
            snd_wnd: narrow("snd_wnd"),
            rcv_wnd: narrow("rcv_wnd"),
            snd_una: narrow("snd_una"),
            snd_nxt: narrow("snd_nxt"),
            ca_state: nth(&CaState::ALL, fields.number("cong_state")),
            state: nth(
                &State::ALL,
                fields.number("newstate").and_then(|n| n.checked_sub(1)),
            ),
            bytes: narrow("data_len").or(narrow("ret")).map(u32::cast_signed),
            ..Moment::new(time, host, event, socket)
        })
    }
}

/// Calls as they begin and end.
struct Calls<'a> {
    /// Names of functions by their addresses.
    symbols: HashMap<u64, &'a str>,
    all: Vec<Call>,
    /// Those of each process that go on, by their places.
    open: HashMap<u64, Vec<usize>>,
}

impl<'a> Calls<'a> {
    /// With /proc/kallsyms: address, type and name on each line.
    fn new(symbols: &'a str) -> Self {
        let named = |line: &'a str| {
            let (address, rest) = line.split_once(' ')?;
            let (_, name) = rest.split_once(' ')?;
            Some((u64::from_str_radix(address, 16).ok()?, name))
        };
        Self {
            symbols: symbols.lines().filter_map(named).collect(),
            all: Vec::new(),
            open: HashMap::new(),
        }
    }

    fn hear(&mut self, time_ns: Nanos, event: Option<(&str, Fields)>) -> Option<()> {
        let (name, fields) = event?;
        let (begins, ends) = (name == "funcgraph_entry", name == "funcgraph_exit");
        if !begins && !ends {
            return None;
        }
        let depth = fields.number("depth")?;
        let open = self.open.entry(fields.number("common_pid")?).or_default();
        if begins {
            let address = fields.number("func")?;
            let name = self.symbols.get(&address);
            open.push(self.all.len());
            self.all.push(Call {
                time_ns,
                depth,
                function: name.map_or_else(|| format!("{address:#x}"), |name| (*name).to_owned()),
                duration_ns: None,
            });
        }
        while let Some(call) = open.pop_if(|_| ends).and_then(|at| self.all.get_mut(at)) {
            if call.depth == depth {
                call.duration_ns = Some(time_ns.since(call.time_ns).0);
                break;
            }
        }
        Some(())
    }
}

fn nth<T: Copy>(all: &[T], n: Option<u64>) -> Option<T> {
    all.get(usize::try_from(n?).ok()?).copied()
}

/// Of the IP header.
const TCP: u64 = 6;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

/// `field:unsigned short common_type; offset:0; size:2; signed:0;`
fn field(line: &str) -> Option<(&str, Place)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';');
    let name = parts.next()?.split_ascii_whitespace().next_back()?;
    let mut number = |key| parts.next()?.trim().strip_prefix(key)?.parse().ok();
    let place = Place {
        offset: number("offset:")?,
        size: number("size:")?,
    };
    Some((name.split('[').next()?, place))
}

/// An event's data.
struct Fields<'a> {
    data: &'a [u8],
    places: &'a HashMap<String, Place>,
}

impl Fields<'_> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        let Place { offset, size } = *self.places.get(name)?;
        self.data.get(offset..offset + size)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let bytes = self.bytes(name).filter(|bytes| bytes.len() <= 8)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |n, byte| n << 8 | u64::from(*byte)),
        )
    }

    /// An address with its port, unless there is no port yet.
    fn end(&self, address: &str, port: &str) -> Option<SocketAddr> {
        let bytes = self.bytes(address)?;
        let v4 = |from: usize| Some(Ipv4Addr::from(*bytes.get(from..)?.first_chunk::<4>()?));
        let ip: IpAddr = match (self.number("family")?, bytes.len()) {
            // struct sockaddr_in and sockaddr_in6
            (AF_INET, 28) => v4(4)?.into(),
            (AF_INET6, 28) => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
            (AF_INET, _) => v4(0)?.into(),
            _ => {
                let bytes = self.bytes(&format!("{address}_v6"))?;
                Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()
            }
        };
        let port = u16::try_from(self.number(port)?).ok()?;
        (port != 0).then(|| SocketAddr::new(ip.to_canonical(), port))
    }
}

/// Gives each moment the ends of its socket, which not every event names.
fn name_ends(moments: &mut [Moment]) {
    // Where a socket has ended, another one may begin.
    let mut lives: HashMap<u64, u32> = HashMap::new();
    let life = |moment: &Moment| {
        let life = lives.entry(moment.socket).or_default();
        let key = (moment.socket, *life);
        *life += u32::from(moment.state == Some(State::Closed));
        key
    };
    let keys: Vec<_> = moments.iter().map(life).collect();
    let mut ends: HashMap<_, (Option<SocketAddr>, Option<SocketAddr>)> = HashMap::new();
    for (moment, key) in moments.iter().zip(&keys) {
        let (local, remote) = ends.entry(*key).or_default();
        for (end, named) in [(local, moment.local), (remote, moment.remote)] {
            // One that serves IPv4 too has an address when its connection is there.
            *end = end
                .filter(|end| !end.ip().is_unspecified())
                .or(named)
                .or(*end);
        }
    }
    for (moment, key) in moments.iter_mut().zip(&keys) {
        (moment.local, moment.remote) = ends[key];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\
name: inet_sock_set_state
ID: 415
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:const void * skaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:int newstate;\toffset:16;\tsize:4;\tsigned:1;
\tfield:__u16 sport;\toffset:20;\tsize:2;\tsigned:0;
\tfield:__u16 family;\toffset:22;\tsize:2;\tsigned:0;
\tfield:__u8 saddr[4];\toffset:24;\tsize:4;\tsigned:0;
name: sock_send_length
ID: 412
format:
\tfield:void * sk;\toffset:8;\tsize:8;\tsigned:0;
\tfield:__u16 protocol;\toffset:16;\tsize:2;\tsigned:0;
\tfield:int ret;\toffset:20;\tsize:4;\tsigned:1;
";

    fn state(socket: u64, state: u32, port: u16) -> Vec<u8> {
        let mut data = 415_u64.to_le_bytes().to_vec();
        data.extend(socket.to_le_bytes());
        data.extend(state.to_le_bytes());
        data.extend(port.to_le_bytes());
        data.extend([2, 0, 10, 0, 0, 1]);
        data
    }

    fn send(socket: u64, protocol: u16, ret: i32) -> Vec<u8> {
        let mut data = 412_u64.to_le_bytes().to_vec();
        data.extend(socket.to_le_bytes());
        data.extend([protocol.to_le_bytes(), [0; 2]].concat());
        data.extend(ret.to_le_bytes());
        data
    }

    /// An event of whole words.
    fn event(delta: u32, data: &[u8]) -> Vec<u8> {
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(4), 0);
        let head = delta << 5 | (data.len() / 4) as u32;
        [&head.to_le_bytes()[..], &data].concat()
    }

    fn page(time: u64, flags: u64, events: &[Vec<u8>]) -> Vec<u8> {
        let events = events.concat();
        let bytes = events.len() as u64 | flags;
        let mut page = [time.to_le_bytes(), bytes.to_le_bytes()].concat();
        page.extend(events);
        page.resize(PAGE, 0xee);
        page
    }

    fn moments(pages: &[Vec<u8>]) -> Vec<Moment> {
        let formats = Formats::parse(FORMAT);
        let mut moments = Vec::new();
        for page in pages {
            let hear = |time, data: &[u8]| {
                moments.extend(formats.moment(Nanos(time), Port::A, data));
            };
            events(page, hear).unwrap();
        }
        name_ends(&mut moments);
        moments
    }

    #[test]
    fn calls_end_where_they_began() {
        let text = "name: funcgraph_entry\nID: 11\n\
                    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
                    \tfield:unsigned long func;\toffset:8;\tsize:8;\tsigned:0;\n\
                    \tfield:int depth;\toffset:16;\tsize:4;\tsigned:1;\n";
        let formats = text.replace("entry", "exit").replace("11", "10") + text;
        let formats = Formats::parse(&formats);
        let event = |id: u32, pid: u32, func: u64, depth: u32| {
            let head = [id, pid].map(u32::to_le_bytes).concat();
            [&head[..], &func.to_le_bytes(), &depth.to_le_bytes()].concat()
        };
        let mut calls = Calls::new("0000000000001000 t outer\n0000000000002000 T inner\n");
        for (time, data) in [
            (10, event(11, 1, 0x1000, 0)),
            (10, event(11, 1, 0x2000, 1)),
            // Another process begins while this one waits, and does not end.
            (20, event(11, 2, 0x3000, 0)),
            (50, event(10, 1, 0x2000, 1)),
            (60, event(10, 1, 0x1000, 0)),
        ] {
            calls.hear(Nanos(time), formats.fields(&data));
        }
        let call = |time, depth, function: &str, duration_ns| Call {
            time_ns: Nanos(time),
            depth,
            function: function.to_owned(),
            duration_ns,
        };
        let expected = [
            call(10, 0, "outer", Some(50)),
            call(10, 1, "inner", Some(40)),
            call(20, 0, "0x3000", None),
        ];
        assert_eq!(calls.all, expected);
    }

    #[test]
    fn times_add_up_and_flags_are_no_bytes() {
        let words = |words: [u32; 2]| words.map(u32::to_le_bytes).concat();
        let long = [words([5 << 5, 24 + 4]), send(1, 6, 7)].concat();
        let pages = [
            page(
                1000,
                1 << 31,
                &[
                    event(10, &send(1, 6, 5)),
                    words([3 << 5 | TIME_EXTEND, 1]),
                    long,
                    [words([2 << 5 | PADDING, 8]), vec![0; 4]].concat(),
                    words([9 << 5 | TIME_STAMP, 2]),
                    event(0, &send(1, 6, -11)),
                    words([PADDING, 0]),
                ],
            ),
            page(
                u64::MAX - 1,
                0,
                &[event(1, &send(1, 17, 5)), event(0, &send(1, 6, 8))],
            ),
        ];
        let all = moments(&pages);
        let seen: Vec<_> = all.iter().map(|m| (m.time_ns.0, m.bytes)).collect();
        let extended = 1000 + 10 + 3 + (1 << 27);
        assert_eq!(
            seen,
            [
                (1010, Some(5)),
                (extended + 5, Some(7)),
                (9 + (2 << 27), Some(-11)),
                // That between them is not of TCP.
                (u64::MAX, Some(8)),
            ]
        );
    }

    #[test]
    fn a_page_that_is_cut_or_wrong_is_no_page() {
        let whole = page(0, 0, &[event(1, &send(1, 6, 5))]);
        for cut in 0..PAGE_HEADER + 28 {
            assert!(events(&whole[..cut], |_, _| {}).is_none(), "{cut}");
        }
        let beyond = page(0, 0, &[(3_u32 << 5 | 28).to_le_bytes().to_vec()]);
        assert!(events(&beyond, |_, _| {}).is_none());
    }

    #[test]
    fn a_socket_has_its_ends_from_its_first_to_its_last_moment() {
        let events = [
            event(1, &state(1, 2, 0)),
            event(1, &send(2, 6, 1)),
            event(1, &state(1, 1, 5001)),
            event(1, &send(1, 6, 100)),
            event(1, &state(1, 7, 0)),
            event(1, &state(1, 1, 80)),
        ];
        let all = moments(&[page(0, 0, &events)]);
        let ports: Vec<_> = all.iter().map(|m| m.local.map(|end| end.port())).collect();
        let own = Some(5001);
        assert_eq!(ports, [own, None, own, own, own, Some(80)]);
        assert_eq!(all[2].state, Some(State::Established));
        assert_eq!(all[4].state, Some(State::Closed));
    }
}
