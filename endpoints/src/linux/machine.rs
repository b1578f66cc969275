// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process of a User-Mode Linux kernel, and its directory in the run.
//!
//! What a kernel sees must not depend on where and when it runs: its command line, from which its
//! random numbers grow, names no directory, its environment is empty, and its addresses are not
//! random.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::affinity::Core;
use super::agents::AGENT;
use super::image::Image;

pub(super) const CONSOLE: &str = "console.log";
/// In a host's directory, as long as it runs.
pub(super) const FILES: [&str; 6] = ["clock", "network", "orders", "linux", "initramfs", AGENT];
/// Where the kernel keeps what is its own.
pub(super) const UML: &str = "uml";
/// Of the console, for an error.
const LAST_LINES: usize = 15;

/// What the kernel connects to.
pub(super) struct Sockets {
    pub clock: UnixListener,
    pub network: UnixListener,
    pub orders: UnixListener,
}

/// What a kernel is started with.
pub(super) struct Boot<'a> {
    pub image: &'a Image,
    /// Tells the kernels of a run apart.
    pub name: &'static str,
    pub memory_mib: u32,
    pub seed: u64,
    /// What reading the clock costs a process.
    pub clock_read_ns: u64,
    /// Where it computes, with all of its processes.
    pub core: &'a Core,
}

/// A kernel that runs. Dropping it ends it.
pub(super) struct Machine {
    directory: PathBuf,
    child: Stop,
}

/// Ends a kernel from any thread.
#[derive(Clone)]
pub(super) struct Stop(Arc<Mutex<Child>>);

impl Machine {
    /// Starts a kernel in a directory, which holds what its first process needs.
    pub fn start(directory: &Path, boot: &Boot) -> io::Result<(Self, Sockets)> {
        symlink(
            fs::canonicalize(&boot.image.kernel)?,
            directory.join("linux"),
        )?;
        symlink(
            fs::canonicalize(&boot.image.initramfs)?,
            directory.join("initramfs"),
        )?;
        let sockets = Sockets {
            clock: listen(directory, "clock")?,
            network: listen(directory, "network")?,
            orders: listen(directory, "orders")?,
        };
        let console = File::create(directory.join(CONSOLE))?;
        let mut command = Command::new("./linux");
        command
            .current_dir(directory)
            .env_clear()
            .args(arguments(boot))
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            .process_group(0);
        let parent = nix::unistd::getpid();
        let enter_core = boot.core.enter();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                enter_core()?;
                nix::sys::personality::set(nix::sys::personality::Persona::ADDR_NO_RANDOMIZE)?;
                nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
                // This process may have ended before it could be told of that.
                match nix::unistd::getppid() == parent {
                    true => Ok(()),
                    false => Err(io::ErrorKind::BrokenPipe.into()),
                }
            });
        }
        let child = Stop(Arc::new(Mutex::new(command.spawn()?)));
        let directory = directory.to_owned();
        Ok((Self { directory, child }, sockets))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// For another thread.
    pub fn stop(&self) -> Stop {
        self.child.clone()
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.child
            .with(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// The end of what it has written on its console, or what it said when it panicked.
    pub fn console(&self) -> String {
        let text = fs::read(self.directory.join(CONSOLE)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text
            .lines()
            .map(str::trim_end)
            .filter(|l| !l.is_empty())
            .collect();
        let panic = lines.iter().position(|line| line.contains("Kernel panic"));
        let from = panic.unwrap_or(lines.len().saturating_sub(LAST_LINES));
        let last: Vec<_> = lines.into_iter().skip(from).take(LAST_LINES).collect();
        last.join("\n")
    }

    /// Ends it.
    pub fn end(&self) {
        self.child.end();
        for name in FILES {
            // What stays behind only takes room.
            let _ = fs::remove_file(self.directory.join(name));
        }
        let _ = fs::remove_dir_all(self.directory.join(UML));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

impl Stop {
    fn with<T>(&self, what: impl FnOnce(&mut Child) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the kernel, and with it all of its processes.
    pub fn end(&self) {
        self.with(|child| {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        });
    }
}

fn arguments(boot: &Boot) -> Vec<String> {
    let fixed = [
        "hostfs=/proc/self/cwd",
        "initrd=initramfs",
        "uml_dir=uml/",
        "time-travel=ext:1:clock",
        // Virtio's numbers of a network card and of a console
        "virtio_uml.device=network:1",
        "virtio_uml.device=orders:3",
        "con=null",
        "con0=fd:0,fd:1",
        "ssl=null",
        "panic=-1",
        "quiet",
        "norandmaps",
    ];
    let own = [
        format!("mem={}M", boot.memory_mib),
        format!("umid={}", boot.name),
        format!("time-travel-read-cost={}", boot.clock_read_ns),
        format!("seed={}", boot.seed),
    ];
    fixed.map(String::from).into_iter().chain(own).collect()
}

/// Listens in a directory whose path may be too long for a socket's address.
fn listen(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let directory = File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}
