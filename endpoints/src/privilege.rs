// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How this process may make network namespaces: with the capabilities it has, or in a user
//! namespace of its own, or not at all. Decided once, by trying it in a child.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Uid, fork};

use crate::{Error, tap};

/// What lets this process make hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Capabilities that it was started with.
    Root,
    /// It is root in a user namespace of its own.
    UserNamespace,
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Privilege::Root => "root",
            Privilege::UserNamespace => "user namespace",
        })
    }
}

/// What a host needs, in the order in which it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    UserNamespace,
    IdentityMaps,
    Namespaces,
    OpenDevice,
    CreateInterface,
}

const STEPS: [Step; 5] = [
    Step::UserNamespace,
    Step::IdentityMaps,
    Step::Namespaces,
    Step::OpenDevice,
    Step::CreateInterface,
];

#[derive(Debug, Clone, Copy)]
struct Refused {
    step: Step,
    errno: i32,
}

impl Refused {
    fn at<E: Into<io::Error>>(step: Step) -> impl FnOnce(E) -> Refused {
        move |error| Refused {
            step,
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The namespaces that make a host: network, processes, and mounts to show them.
pub(crate) fn host_namespaces() -> CloneFlags {
    CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS
}

/// Sees to it that this process can make hosts. To be called first of all in `main`: a user
/// namespace can only be entered while the process has a single thread.
///
/// On failure the process is as it was, and the error says in one sentence what is missing.
pub fn enter() -> Result<Privilege, Error> {
    let refused = match probe(None)? {
        Ok(()) => return Ok(Privilege::Root),
        Err(refused) => refused,
    };
    if refused.errno != libc::EPERM || refused.step == Step::OpenDevice {
        return Err(explain(refused));
    }
    let root = Root::of_this_user();
    probe(Some(&root))?.map_err(explain)?;
    root.become_it().map_err(explain)?;
    Ok(Privilege::UserNamespace)
}

/// The map that makes this user the root of a user namespace.
struct Root {
    uid_map: String,
    gid_map: String,
}

impl Root {
    fn of_this_user() -> Root {
        Root {
            uid_map: format!("0 {} 1", Uid::effective()),
            gid_map: format!("0 {} 1", Gid::effective()),
        }
    }

    fn become_it(&self) -> Result<(), Refused> {
        unshare(CloneFlags::CLONE_NEWUSER).map_err(Refused::at(Step::UserNamespace))?;
        let write = |path, text: &str| {
            OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(Refused::at(Step::IdentityMaps))
        };
        // The kernel wants this before it lets an ordinary user map a group.
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &self.uid_map)?;
        write("/proc/self/gid_map", &self.gid_map)
    }
}

/// Everything a host needs, in this very process.
fn attempt(root: Option<&Root>) -> Result<(), Refused> {
    if let Some(root) = root {
        root.become_it()?;
    }
    unshare(host_namespaces()).map_err(Refused::at(Step::Namespaces))?;
    let device = tap::open().map_err(Refused::at(Step::OpenDevice))?;
    tap::create(&device, "eth0").map_err(Refused::at(Step::CreateInterface))
}

/// Makes the attempt in a child, which leaves this process as it is.
fn probe(root: Option<&Root>) -> Result<Result<(), Refused>, Error> {
    let broken =
        |error: io::Error| Error::Environment(format!("the probe for namespaces failed: {error}"));
    let (reader, writer): (OwnedFd, OwnedFd) = nix::unistd::pipe().map_err(|e| broken(e.into()))?;
    // SAFETY: the child makes system calls on what was prepared before the fork, allocates
    // nothing, and ends by _exit.
    match unsafe { fork() }.map_err(|e| broken(e.into()))? {
        ForkResult::Child => {
            let answer = match attempt(root) {
                Ok(()) => [0; 5],
                Err(Refused { step, errno }) => {
                    let [a, b, c, d] = errno.to_ne_bytes();
                    [step as u8 + 1, a, b, c, d]
                }
            };
            let sent = File::from(writer).write_all(&answer);
            // SAFETY: _exit takes any status and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(sent.is_err())) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut answer = [0; 5];
            let read = File::from(reader).read_exact(&mut answer);
            while let Err(Errno::EINTR) = waitpid(child, None) {}
            read.map_err(broken)?;
            let [step, a, b, c, d] = answer;
            Ok(match STEPS.get(usize::from(step).wrapping_sub(1)) {
                None => Ok(()),
                Some(&step) => Err(Refused {
                    step,
                    errno: i32::from_ne_bytes([a, b, c, d]),
                }),
            })
        }
    }
}

/// One sentence: what is missing, and what would help if that is known.
fn explain(refused: Refused) -> Error {
    let error = io::Error::from_raw_os_error(refused.errno);
    let device = tap::DEVICE;
    Error::Environment(match refused.step {
        Step::OpenDevice => {
            let hint = match refused.errno {
                libc::ENOENT | libc::ENODEV | libc::ENXIO => {
                    "; load the module tun, or pass the device into this container"
                }
                libc::EACCES => {
                    "; it has to be open to this user, as distributions have it (mode 0666)"
                }
                libc::EPERM => "; this container's device rules forbid it",
                _ => "",
            };
            format!("{device} cannot be opened: {error}{hint}")
        }
        Step::CreateInterface => format!("{device} makes no TAP: {error}"),
        Step::UserNamespace if refused.errno == libc::EINVAL => {
            "a user namespace can only be entered before the program starts threads".to_owned()
        }
        Step::UserNamespace | Step::IdentityMaps | Step::Namespaces => {
            let cause = forbidding_sysctl(refused.step).unwrap_or_else(|| {
                "a container or its seccomp profile may be the cause".to_owned()
            });
            format!(
                "this user lacks CAP_SYS_ADMIN and CAP_NET_ADMIN, and the kernel forbids \
                 unprivileged user namespaces ({error}): {cause}; run as root instead"
            )
        }
    })
}

/// The setting that keeps an ordinary user from user namespaces, where there is one.
fn forbidding_sysctl(step: Step) -> Option<String> {
    // The last lets a user namespace be made, but gives no rights in it.
    let suspects: &[(&str, &str)] = match step {
        Step::UserNamespace => &[
            ("kernel.unprivileged_userns_clone", "0"),
            ("user.max_user_namespaces", "0"),
        ],
        _ => &[("kernel.apparmor_restrict_unprivileged_userns", "1")],
    };
    suspects.iter().find_map(|(name, forbidding)| {
        let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
        (value.trim() == *forbidding).then(|| format!("sysctl {name} is {forbidding}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_one_sentence_that_names_what_is_missing() {
        let said = |step, errno| explain(Refused { step, errno }).to_string();
        for (step, errno, names) in [
            (
                Step::OpenDevice,
                libc::ENOENT,
                "/dev/net/tun cannot be opened: No such file",
            ),
            (Step::OpenDevice, libc::EACCES, "mode 0666"),
            (Step::OpenDevice, libc::EPERM, "device rules"),
            (
                Step::CreateInterface,
                libc::EPERM,
                "/dev/net/tun makes no TAP",
            ),
            (
                Step::UserNamespace,
                libc::EINVAL,
                "before the program starts threads",
            ),
            (
                Step::UserNamespace,
                libc::EPERM,
                "forbids unprivileged user namespaces",
            ),
            (Step::Namespaces, libc::EPERM, "run as root instead"),
        ] {
            let sentence = said(step, errno);
            assert!(
                sentence.starts_with("cannot make hosts on this machine: "),
                "{sentence}"
            );
            assert!(
                sentence.contains(names) && !sentence.contains('\n'),
                "{sentence}"
            );
        }
    }
}
