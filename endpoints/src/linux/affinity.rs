// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core that both kernels of a run compute on, and the card between them.
//!
//! They take turns: whoever computes, the others wait for him. Handing over to a process on the
//! same core is much cheaper than waking another core, and leaves that one to another run.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

const THIS: Pid = Pid::from_raw(0);

/// A core of this machine, for one run.
pub(super) struct Core {
    set: CpuSet,
    /// A name that only one run has at a time, and that goes with its process.
    _claim: Option<UnixListener>,
}

impl Core {
    /// One that no other run has or, when all are taken, the one that this thread is on.
    pub fn take() -> io::Result<Self> {
        let allowed = sched_getaffinity(THIS)?;
        let here = sched_getcpu()?;
        let others = (0..CpuSet::count()).filter(|cpu| *cpu != here);
        let mut all = std::iter::once(here).chain(others);
        let free = all.find_map(|cpu| match allowed.is_set(cpu) {
            Ok(true) => Some((cpu, claim(cpu).ok()?)),
            _ => None,
        });
        let (cpu, claim) = free.unzip();
        let mut set = CpuSet::new();
        set.set(cpu.unwrap_or(here))?;
        Ok(Self { set, _claim: claim })
    }

    /// What lets a thread compute on this core alone, and what it starts from then on: a single
    /// system call.
    pub fn enter(&self) -> impl Fn() -> io::Result<()> + use<> {
        let set = self.set;
        move || Ok(sched_setaffinity(THIS, &set)?)
    }
}

fn claim(cpu: usize) -> io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("midwire-core-{cpu}"))?;
    UnixListener::bind_addr(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_beside_each_other_have_cores_of_their_own() {
        let allowed = sched_getaffinity(THIS).unwrap();
        let cores: Vec<_> = (0..CpuSet::count())
            .filter(|cpu| allowed.is_set(*cpu) == Ok(true))
            .map(|_| Core::take().unwrap())
            .collect();
        let claimed = cores.iter().filter(|core| core._claim.is_some());
        let sets: Vec<_> = claimed.map(|core| core.set).collect();
        for (n, set) in sets.iter().enumerate() {
            assert!(!sets[..n].contains(set));
        }
        let late = Core::take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                late.enter()().unwrap();
                assert_eq!(sched_getaffinity(THIS).unwrap(), late.set);
            });
        });
        assert_eq!(sched_getaffinity(THIS).unwrap(), allowed);
    }
}
