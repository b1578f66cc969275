// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host: network, process and mount namespaces of its own, and a TAP as its only interface.
//!
//! A thread lives in the namespaces and starts the host's programs. Process 1 of the host is a
//! child that does nothing but hold on to a pipe from this process. When the pipe closes, because
//! the host was dropped or this process died of whatever cause, process 1 ends, and the kernel
//! kills everything that was ever started in the host, however it detached itself.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netlink_packet_route::link::LinkAttribute;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use serde::Serialize;

use crate::netlink::Netlink;
use crate::options::{self, Neighbours, TapHost};
use crate::{Cidr, Error, Mac, Port, privilege, tap};

/// The interface of every host.
const INTERFACE: &str = "eth0";
/// Least MTU that IPv6 works with.
const IPV6_LEAST_MTU: u32 = 1280;
/// How often a wait looks whether it should end.
const TICK: Duration = Duration::from_millis(2);
/// How long processes that were killed may take to be gone.
const BURIAL: Duration = Duration::from_secs(5);

/// A host in namespaces of its own, plugged into a port of the card.
#[derive(Debug)]
pub struct Host {
    machine: Arc<Machine>,
    mac: Mac,
    addresses: Vec<Cidr>,
    neighbours: Neighbours,
}

/// What keeps the namespaces in being; programs that run in the host share it.
#[derive(Debug)]
struct Machine {
    port: Port,
    network: File,
    first: Pid,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A program to start, and where to send what became of it.
type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// What went through a host's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LinkCounters {
    /// Frames that the card took from the host.
    pub sent: u64,
    /// Frames that the host wanted to send and that were lost before the card, its queue being
    /// full: not the device's fault, and not in any capture.
    pub send_lost: u64,
    /// Frames that came from the card.
    pub received: u64,
    /// Frames that came from the card and that the host's interface lost.
    pub receive_lost: u64,
}

impl Host {
    /// Makes the host for `port` in this run. The descriptor is the card's side of its wire,
    /// non-blocking: one read or write is one frame without FCS.
    pub fn new(run: &str, port: Port, options: &TapHost) -> Result<(Host, OwnedFd), Error> {
        check(port, options)?;
        let machine = Arc::new(Machine::start(port)?);
        let mac = options.mac(run, port);
        let tap = machine.inside(|| configure(port, options, mac))??;
        let host = Host {
            machine,
            mac,
            addresses: options.address.clone(),
            neighbours: options.neighbours,
        };
        Ok((host, tap))
    }

    /// The port that it is plugged into.
    pub fn port(&self) -> Port {
        self.machine.port
    }

    /// Address of its interface.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Its addresses, the first one first.
    pub fn addresses(&self) -> &[Cidr] {
        &self.addresses
    }

    /// Process 1 of the host, as this process sees it: `nsenter -t PID -n -p -m` goes there.
    pub fn pid(&self) -> u32 {
        self.machine.first.as_raw().cast_unsigned()
    }

    /// Tells the host under which interface address a neighbour is found.
    pub fn add_neighbour(&self, address: IpAddr, mac: Mac) -> Result<(), Error> {
        self.run_in(|| {
            let netlink = Netlink::open()?;
            netlink.add_neighbour(netlink.link(INTERFACE)?.0, address, mac)
        })?
        .map_err(Error::host(
            self.port(),
            format!("cannot add the neighbour {address}"),
        ))
    }

    /// What went through its interface so far. The interface is there for as long as the card
    /// holds its side of the wire.
    pub fn counters(&self) -> Result<LinkCounters, Error> {
        let (_, counters) =
            self.run_in(|| Netlink::open()?.link(INTERFACE))?
                .map_err(Error::host(
                    self.port(),
                    "cannot read the counters of its interface",
                ))?;
        Ok(LinkCounters {
            sent: counters.tx_packets,
            send_lost: counters.tx_dropped,
            received: counters.rx_packets,
            receive_lost: counters.rx_dropped + counters.rx_errors,
        })
    }

    /// Runs `work` on a thread in the host's network namespace, and waits for it. A socket that
    /// is opened there stays the host's wherever it is used.
    pub fn run_in<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.machine.inside(work)
    }

    /// Starts a program in the host, in a process group of its own. It does not outlive the host.
    pub fn spawn(&self, mut command: Command) -> Result<Running, Error> {
        command.process_group(0);
        let name = command.get_program().to_string_lossy().into_owned();
        let (answer, answered) = mpsc::channel();
        let child = match &*self.machine.jobs.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(jobs) => jobs
                .send((command, answer))
                .ok()
                .and_then(|()| answered.recv().ok()),
            None => None,
        };
        child
            .unwrap_or_else(|| Err(io::Error::other("the host is down")))
            .map(|child| Running {
                child,
                ended: None,
                machine: Some(Arc::clone(&self.machine)),
            })
            .map_err(Error::host(self.port(), format!("cannot start {name}")))
    }

    /// Every TCP port that is listened on and every UDP port that is bound, sorted.
    pub fn listeners(&self) -> Result<Vec<u16>, Error> {
        let process = self.machine.first.to_string();
        listeners(&process).map_err(Error::host(self.port(), "cannot read its sockets"))
    }
}

/// Every TCP port that is listened on and every UDP port that is bound, sorted, where a process
/// runs.
fn listeners(process: &str) -> io::Result<Vec<u16>> {
    const LISTEN: &str = "0A";
    const UDP_BOUND: &str = "07";
    let mut ports = Vec::new();
    for (table, state) in [
        ("tcp", LISTEN),
        ("tcp6", LISTEN),
        ("udp", UDP_BOUND),
        ("udp6", UDP_BOUND),
    ] {
        let text = match fs::read_to_string(format!("/proc/{process}/net/{table}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => {
                continue;
            }
            text => text?,
        };
        ports.extend(text.lines().skip(1).filter_map(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let (local, _, found) = (columns.next()?, columns.next()?, columns.next()?);
            let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
            (found == state).then_some(port)
        }));
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// Where a program runs: in a host, or on this machine itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Host(&'a Host),
    Here,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(host) => write!(f, "host {}", host.port()),
            Place::Here => f.write_str("this machine"),
        }
    }
}

impl Place<'_> {
    pub(crate) fn spawn(self, mut command: Command) -> Result<Running, Error> {
        match self {
            Place::Host(host) => host.spawn(command),
            Place::Here => {
                let name = command.get_program().to_string_lossy().into_owned();
                command
                    .process_group(0)
                    .spawn()
                    .map(|child| Running {
                        child,
                        ended: None,
                        machine: None,
                    })
                    .map_err(Error::at(None, format!("cannot start {name}")))
            }
        }
    }

    pub(crate) fn listeners(self) -> Result<Vec<u16>, Error> {
        match self {
            Place::Host(host) => host.listeners(),
            Place::Here => listeners("self").map_err(Error::at(None, "cannot read its sockets")),
        }
    }
}

/// Both hosts of a run.
#[derive(Debug)]
pub struct Hosts {
    /// The host at port A.
    pub a: Host,
    /// The host at port B.
    pub b: Host,
}

impl Hosts {
    /// Makes both hosts, known to each other, and returns the card's sides of their wires.
    pub fn new(run: &str, a: &TapHost, b: &TapHost) -> Result<(Hosts, [OwnedFd; 2]), Error> {
        if let Some(both) = a
            .address
            .iter()
            .find(|x| b.address.iter().any(|y| x.address == y.address))
        {
            let message = format!("{} is already the address of host a", both.address);
            return Err(Error::Option {
                port: Port::B,
                message,
            });
        }
        let (a, tap_a) = Host::new(run, Port::A, a)?;
        let (b, tap_b) = Host::new(run, Port::B, b)?;
        for (host, other) in [(&a, &b), (&b, &a)] {
            if host.neighbours == Neighbours::Static {
                for cidr in other
                    .addresses
                    .iter()
                    .filter(|cidr| host.has_family_of(cidr))
                {
                    host.add_neighbour(cidr.address, other.mac)?;
                }
            }
        }
        Ok((Hosts { a, b }, [tap_a, tap_b]))
    }

    /// The host at `port`.
    pub fn at(&self, port: Port) -> &Host {
        match port {
            Port::A => &self.a,
            Port::B => &self.b,
        }
    }

    /// Addresses with which `from` reaches `to`: its own and the other's.
    pub fn route(&self, from: Port, to: Port) -> Option<(IpAddr, IpAddr)> {
        let (local, remote) = options::route(&self.at(from).addresses, &self.at(to).addresses)?;
        Some((local.address, remote.address))
    }
}

impl Host {
    fn has_family_of(&self, cidr: &Cidr) -> bool {
        self.addresses
            .iter()
            .any(|own| own.address.is_ipv4() == cidr.address.is_ipv4())
    }
}

/// Refuses what the kernel would refuse less clearly.
fn check(port: Port, options: &TapHost) -> Result<(), Error> {
    let refuse = |message: String| Err(Error::Option { port, message });
    if options.address.is_empty() {
        return refuse("it needs an address, such as 10.77.0.1/24".to_owned());
    }
    if options.has_ipv6() && options.mtu < IPV6_LEAST_MTU {
        return refuse(format!(
            "MTU {} is below {IPV6_LEAST_MTU}, the least for IPv6",
            options.mtu
        ));
    }
    for name in options.sysctls.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !name.starts_with("net.") || !name.chars().all(plain) || name.contains("..") {
            return refuse(format!(
                "{name:?} is no sysctl of the network, such as net.ipv4.tcp_ecn"
            ));
        }
    }
    Ok(())
}

fn sysctl_path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(sysctl_path(name))?
        .write_all(value.as_bytes())
}

/// Sets up the network of a host, on a thread inside it.
fn configure(port: Port, options: &TapHost, mac: Mac) -> Result<OwnedFd, Error> {
    let tap = tap::new(INTERFACE).map_err(Error::host(port, "cannot make its TAP"))?;
    tap::silence_listener_reports(tap.as_fd())
        .map_err(Error::host(port, "cannot filter what its TAP sends"))?;

    let quiet: &[(&str, &str)] = if options.has_ipv6() {
        &[
            ("net.ipv6.conf.eth0.addr_gen_mode", "1"), // no link-local address but those given
            ("net.ipv6.conf.eth0.accept_dad", "0"),
            ("net.ipv6.conf.eth0.accept_ra", "0"),
            ("net.ipv6.conf.eth0.router_solicitations", "0"),
        ]
    } else {
        &[("net.ipv6.conf.eth0.disable_ipv6", "1")]
    };
    for (name, value) in quiet {
        match write_sysctl(name, value) {
            // A kernel without IPv6 is quiet by itself.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !options.has_ipv6() => {}
            result => result.map_err(Error::host(port, format!("cannot set {name}")))?,
        }
    }
    for (name, value) in &options.sysctls {
        write_sysctl(name, &value.0).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Option {
                port,
                message: format!("{name} is no sysctl of a network namespace of this kernel"),
            },
            io::ErrorKind::PermissionDenied => Error::Option {
                port,
                message: format!("{name} can only be set for the whole machine"),
            },
            _ => Error::host(port, format!("cannot set {name} to {:?}", value.0))(error),
        })?;
    }
    if let Some(name) = &options.congestion_control {
        write_sysctl("net.ipv4.tcp_congestion_control", name).map_err(|error| Error::Option {
            port,
            message: congestion_control_refused(name, &error),
        })?;
    }

    let netlink = Netlink::open().map_err(Error::host(port, "cannot open netlink"))?;
    let loopback = netlink
        .link("lo")
        .and_then(|(index, _)| netlink.set_up(index));
    loopback.map_err(Error::host(port, "cannot bring its loopback up"))?;
    let (index, _) = netlink
        .link(INTERFACE)
        .map_err(Error::host(port, "cannot find its TAP"))?;
    for (attribute, what) in [
        (
            LinkAttribute::Address(mac.0.to_vec()),
            format!("interface address {mac}"),
        ),
        (
            LinkAttribute::Mtu(options.mtu),
            format!("MTU {}", options.mtu),
        ),
        (
            LinkAttribute::TxQueueLen(options.queue),
            format!("queue of {} frames", options.queue),
        ),
    ] {
        netlink
            .set_link(index, vec![attribute])
            .map_err(Error::host(
                port,
                format!("its interface refuses the {what}"),
            ))?;
    }
    for cidr in &options.address {
        netlink.add_address(index, *cidr).map_err(Error::host(
            port,
            format!("its interface refuses the address {cidr}"),
        ))?;
    }
    netlink
        .set_up(index)
        .map_err(Error::host(port, "cannot bring its interface up"))?;
    Ok(tap)
}

/// Why a congestion control cannot be had, and which can.
pub(crate) fn congestion_control_refused(name: &str, error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EPERM) {
        return format!(
            "congestion control {name:?} is kept for the machine itself: add it to sysctl \
             net.ipv4.tcp_allowed_congestion_control"
        );
    }
    let available = fs::read_to_string(sysctl_path("net.ipv4.tcp_available_congestion_control"));
    match available {
        Ok(list) => {
            let mut list: Vec<&str> = list.split_whitespace().collect();
            list.sort_unstable();
            format!(
                "no congestion control {name:?} on this machine ({error}); there are {}",
                list.join(", ")
            )
        }
        Err(_) => format!("no congestion control {name:?} on this machine ({error})"),
    }
}

impl Machine {
    fn start(port: Port) -> Result<Machine, Error> {
        let (jobs, queue) = mpsc::channel();
        let (started, start) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("host-{port}"))
            .spawn(move || live(port, &started, &queue))
            .map_err(Error::host(port, "cannot start its thread"))?;
        let (network, first) = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread ended")))
            .map_err(Error::host(port, "cannot make its namespaces"))?;
        Ok(Machine {
            port,
            network,
            first,
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        })
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name(format!("in-{}", self.port))
                .spawn_scoped(scope, || {
                    setns(&self.network, CloneFlags::CLONE_NEWNET)?;
                    Ok::<T, Errno>(work())
                })
                .map_err(Error::host(self.port, "cannot start a thread"))?;
            thread
                .join()
                .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
                .map_err(Error::host(self.port, "cannot enter its namespace"))
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(
            self.jobs
                .get_mut()
                .unwrap_or_else(|e| e.into_inner())
                .take(),
        );
        if let Some(thread) = self
            .thread
            .get_mut()
            .unwrap_or_else(|e| e.into_inner())
            .take()
        {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The life of a host's thread: into new namespaces, then start programs until it is dropped.
fn live(port: Port, started: &mpsc::Sender<io::Result<(File, Pid)>>, queue: &mpsc::Receiver<Job>) {
    let (lifeline, first) = match boot(port) {
        Ok((network, lifeline, first)) => {
            // Nobody waits for the answer when the maker panicked; then the queue is closed too.
            let _ = started.send(Ok((network, first)));
            (lifeline, first)
        }
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    for (mut command, answer) in queue {
        // An answer nobody waits for is a child nobody would end.
        if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
    drop(lifeline);
    let deadline = Instant::now() + BURIAL;
    while Instant::now() < deadline {
        match waitpid(first, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => thread::sleep(TICK),
            _ => return,
        }
    }
}

/// Moves the calling thread into new namespaces and starts process 1.
fn boot(port: Port) -> io::Result<(File, PipeWriter, Pid)> {
    unshare(privilege::host_namespaces())?;
    let network = File::open("/proc/thread-self/ns/net")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;

    let (end, lifeline) = io::pipe()?;
    let (answered, answer) = io::pipe()?;
    let name = match port {
        Port::A => c"midwire-host-a",
        Port::B => c"midwire-host-b",
    };
    // SAFETY: the child makes system calls on what was prepared before the fork, allocates
    // nothing, and ends by _exit.
    let first = match unsafe { fork() }? {
        ForkResult::Child => unsafe { process_one(end.as_raw_fd(), answer.as_raw_fd(), name) },
        ForkResult::Parent { child } => child,
    };
    drop((end, answer));
    // Closed when process 1 has shown the host's processes under /proc.
    io::copy(&mut &answered, &mut io::sink())?;
    // For programs that look at /sys/class/net. A container may forbid it; sockets do not care.
    let _ = mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none);
    Ok((network, lifeline, first))
}

/// Process 1 of a host: holds the namespaces until `lifeline` closes, and takes in orphans.
///
/// # Safety
/// For a child right after fork: it may only be called where nothing has to be cleaned up.
unsafe fn process_one(lifeline: i32, ready: i32, name: &std::ffi::CStr) -> ! {
    // SAFETY: system calls on valid arguments. The only descriptor left is the lifeline, and no
    // signal handler of the parent's can run.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Ignored, it lets the kernel bury orphans by itself.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::chdir(c"/".as_ptr());
        // A container may forbid it; then programs see the machine's processes, no more.
        libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            0,
            std::ptr::null(),
        );
        libc::close(ready);
        libc::dup2(lifeline, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let mut byte = 0_u8;
        while libc::read(0, (&raw mut byte).cast(), 1) == -1
            && *libc::__errno_location() == libc::EINTR
        {}
        libc::_exit(0)
    }
}

/// A program that runs in a host, or on this machine itself. Dropping it while it runs kills its
/// process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    ended: Option<ExitStatus>,
    /// Its host has to outlive it: process 1 cannot end before this one is buried.
    machine: Option<Arc<Machine>>,
}

/// How waiting for a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It runs on: the time is over.
    TimedOut,
    /// It runs on: the wait was cancelled.
    Cancelled,
}

impl Running {
    /// Its process, as this process sees it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has. What it left in the background runs on, as long as the host does.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            self.ended = self
                .child
                .try_wait()
                .map_err(self.error("cannot wait for it"))?;
        }
        Ok(self.ended)
    }

    /// Waits until it ends, for at most `timeout`.
    pub fn wait(&mut self, timeout: Option<Duration>, cancel: &AtomicBool) -> Result<Ended, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Ended::Exited(status));
            }
            if cancel.load(Ordering::Relaxed) {
                return Ok(Ended::Cancelled);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Ended::TimedOut);
            }
            thread::sleep(TICK);
        }
    }

    /// Asks its process group to end, kills what is left of it after `grace` or when the program
    /// itself has ended, and returns how that ended.
    pub fn stop(&mut self, grace: Duration) -> Result<ExitStatus, Error> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + grace;
        while Instant::now() < deadline && !self.is_dead() {
            thread::sleep(TICK);
        }
        self.bury()
    }

    /// Whether it has ended, without burying it: until then its group's number stays its own.
    fn is_dead(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(
            waitid(Id::Pid(self.group()), flags),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        )
    }

    /// Kills its process group and waits until all of it is gone.
    fn bury(&mut self) -> Result<ExitStatus, Error> {
        self.signal(Signal::SIGKILL);
        let status = self
            .child
            .wait()
            .map_err(self.error("cannot wait for it"))?;
        self.ended = Some(status);
        let deadline = Instant::now() + BURIAL;
        while killpg(self.group(), None).is_ok() && Instant::now() < deadline {
            thread::sleep(TICK);
        }
        Ok(status)
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn signal(&self, signal: Signal) {
        // Fails only when the whole group is gone already.
        let _ = killpg(self.group(), signal);
    }

    fn error(&self, what: &str) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::at(
            self.machine.as_ref().map(|machine| machine.port),
            format!("process {}: {what}", self.child.id()),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // What cannot be waited for cannot be helped here.
            let _ = self.bury();
        }
    }
}
