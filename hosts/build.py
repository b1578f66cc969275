#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes the kernel and the initramfs of Linux hosts on the card's clock.

They come from Debian's packages, which are downloaded and unpacked, not installed, so that no
privilege is needed. The results are kept in ~/.cache/midwire/hosts, and named after the contents of
the files that they are made from: for the same contents nothing is done.
"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "midwire/hosts"
# What names the results, as endpoints/src/linux/image.rs has it too.
INPUTS = {"linux": ["kernel.config", "kernel.patch"], "initramfs": ["build.py", "calls.c", "init", "poll.c", "tcp.c"]}

SOURCE = "linux-source-6.12"
TOOLS = ["bc", "bison", "flex", "m4"]
HEADERS = ["libibverbs-dev"]
NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg", "gcc": "gcc", "make": "make", "patch": "patch", "xz": "xz-utils",
          "readelf": "binutils"}
PACKAGES = ["busybox-static", "dash", "iproute2", "iputils-ping", "ethtool", "iperf3", "curl", "nginx-light", "perftest",
            "ibverbs-providers", "ibverbs-utils", "rdmacm-utils"]
PROGRAMS = ["busybox", "dash", "ip", "ss", "tc", "rdma", "ping", "ethtool", "iperf3", "curl", "nginx", "rping",
            "ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "ib_send_bw", "ib_send_lat", "ib_write_bw",
            "ib_write_lat", "ib_read_bw", "ib_read_lat"]
FILES = ["etc/libibverbs.d/rxe.driver", "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
         "usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "etc/nginx/mime.types"]
LIBRARIES = ["usr/lib/x86_64-linux-gnu", "usr/lib"]
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/sh\n",
    "etc/group": "root:x:0:\nwww-data:x:33:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "hosts: files\n",
    # As the patch of the kernel has the time stamp counter; perftest looks for it here.
    "etc/cpuinfo": "processor : 0\ncpu MHz : 1000.000\n",
}
FOLDERS = ["dev", "proc", "sys", "tmp", "run", "host", "root", "var/log/nginx", "var/lib/nginx", "var/www"]


def named(result):
    """The path of a result, named by FNV-1a of 64 bits."""
    key = 0xcbf29ce484222325
    for byte in b"".join((HERE / name).read_bytes() for name in INPUTS[result]):
        key = (key ^ byte) * 0x100000001b3 % 2**64
    return CACHE / f"{result}-{key:016x}"


def call(*command, **options):
    """Runs a command; its output is shown when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\nmake hosts: {' '.join(map(str, command))} failed")
    return done.stdout


def download(folder, packages):
    """The files of packages."""
    folder.mkdir()
    call("apt-get", "-qq", "download", *packages, cwd=folder)
    return sorted(folder.glob("*.deb"))


def closure(packages):
    """Packages with all that they depend on, as on a machine that has none."""
    lines = call("apt-get", "install", "-qq", "--print-uris", "-y", "--no-install-recommends",
                 "-o", "Dir::State::status=/dev/null", *packages).splitlines()
    names = (line.split()[1].removesuffix(".deb").split("_") for line in lines if line.startswith("'"))
    return [f"{name}={version.replace('%3a', ':')}" for name, version, _ in names]


def unpack(root, packages):
    """Unpacks packages into a tree whose /bin, /sbin and /lib are those of /usr."""
    for name in ["bin", "sbin", "lib", "lib64"]:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], input=tar, check=True)


def kernel(work):
    """Builds the kernel; its file."""
    print(f"make hosts: building the kernel from {SOURCE}, some minutes", flush=True)
    tools = work / "tools"
    unpack(tools, download(work / "tool-packages", TOOLS))
    unpack(work / "source", download(work / "source-package", [SOURCE]))
    call("tar", "-xJf", work / f"source/usr/src/{SOURCE}.tar.xz", "-C", work)
    tree = work / SOURCE
    call("patch", "-p1", "-i", HERE / "kernel.patch", cwd=tree)
    # The same inputs give the same kernel, wherever and whenever it is built: nothing else of the
    # environment gets in.
    environment = {"PATH": f"{tools}/usr/bin:{os.environ['PATH']}", "M4": f"{tools}/usr/bin/m4",
                   "BISON_PKGDATADIR": f"{tools}/usr/share/bison", "KCONFIG_ALLCONFIG": str(HERE / "kernel.config"),
                   "LC_ALL": "C", "TZ": "UTC", "LOCALVERSION": "", "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
                   "KBUILD_BUILD_USER": "midwire", "KBUILD_BUILD_HOST": "midwire", "KBUILD_BUILD_VERSION": "1"}
    call("make", "ARCH=um", "allnoconfig", cwd=tree, env=environment)
    config = (tree / ".config").read_text().splitlines()
    wanted = [line for line in (HERE / "kernel.config").read_text().splitlines() if line.startswith("CONFIG_")]
    if lacking := [line for line in wanted if line not in config]:
        sys.exit(f"make hosts: the kernel's configuration lacks {', '.join(lacking)}")
    call("make", "ARCH=um", f"-j{os.cpu_count()}", "linux", cwd=tree, env=environment)
    call("strip", tree / "linux")
    return tree / "linux"


def libraries(root, program):
    """The shared libraries and the loader that a program names."""
    text = call("readelf", "--dynamic", "--program-headers", program)
    names = [line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]
    for name in names:
        yield next((f"{folder}/{name}" for folder in LIBRARIES if (root / folder / name).exists()), None) or \
            sys.exit(f"make hosts: {program.name} needs {name}, which no package has")
    if "interpreter: " in text:
        loader = text.split("interpreter: ")[1].split("]")[0].lstrip("/")
        yield f"usr/{loader}"


class Archive:
    """A cpio archive as the kernel takes it (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.out, self.names = bytearray(), set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        """A file; and the directories above it."""
        parent = os.path.dirname(name)
        if parent and parent not in self.names:
            self.add(parent, stat.S_IFDIR | 0o755)
        if name in self.names:
            return
        self.names.add(name)
        fields = [len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        self.out += b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        self.out += bytes(-len(self.out) % 4) + data
        self.out += bytes(-len(self.out) % 4)

    def copy(self, root, name):
        """A file of a tree, and the files that its links lead to."""
        path = root / name
        if path.is_symlink():
            target = os.readlink(path)
            self.add(name, stat.S_IFLNK | 0o777, target.encode())
            place = root / target.lstrip("/") if target.startswith("/") else path.parent / target
            self.copy(root, str((place.parent.resolve() / place.name).relative_to(root.resolve())))
        else:
            self.add(name, stat.S_IFREG | 0o755, path.read_bytes())


def initramfs(work):
    """Packs programs and what they need; the archive's file."""
    root = work / "root"
    unpack(root, download(work / "packages", closure(PACKAGES)))
    archive = Archive()
    for name in ["bin", "sbin", "lib", "lib64"]:
        archive.add(name, stat.S_IFLNK | 0o777, f"usr/{name}".encode())
    for name in FOLDERS:
        archive.add(name, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("init", stat.S_IFREG | 0o755, (HERE / "init").read_bytes())
    for name, text in TEXTS.items():
        archive.add(name, stat.S_IFREG | 0o644, text.encode())
    found = [next((f"usr/{folder}/{name}" for folder in ["bin", "sbin"]
                   if os.path.lexists(root / "usr" / folder / name)), name) for name in PROGRAMS]
    queue, done = found + FILES, set()
    while queue:
        name = queue.pop()
        if name in done:
            continue
        done.add(name)
        if not os.path.lexists(root / name):
            sys.exit(f"make hosts: no package has {name}")
        archive.copy(root, name)
        if (root / name).resolve().read_bytes()[:4] == b"\x7fELF":
            queue += libraries(root, root / name)
    unpack(work / "headers", download(work / "header-packages", HEADERS))
    for name, source, options in [("usr/bin/midwire-calls", "calls.c", ["-static", "-pthread"]),
                                  ("usr/bin/midwire-tcp", "tcp.c", ["-static"]),
                                  ("usr/lib/midwire-poll.so", "poll.c",
                                   ["-shared", "-fPIC", "-I", work / "headers/usr/include"])]:
        call("gcc", "-O2", "-Wall", "-Wextra", *options, "-o", work / source, HERE / source)
        archive.add(name, stat.S_IFREG | 0o755, (work / source).read_bytes())
    # The shell of busybox would take its own programs for those of the packages.
    archive.add("usr/bin/sh", stat.S_IFLNK | 0o777, b"dash")
    for applet in call(root / "usr/bin/busybox", "--list").split():
        archive.add(f"usr/bin/{applet}", stat.S_IFLNK | 0o777, b"busybox")
    archive.add("TRAILER!!!", 0)
    (work / "initramfs").write_bytes(archive.out)
    return work / "initramfs"


def main():
    """Makes what is not there."""
    missing = {result: make for result, make in {"initramfs": initramfs, "linux": kernel}.items()
               if not named(result).exists()}
    lacking = [package for tool, package in NEEDED.items() if not shutil.which(tool)]
    if missing and lacking:
        sys.exit(f"make hosts needs {', '.join(lacking)}; on Debian: apt install {' '.join(lacking)}")
    CACHE.mkdir(parents=True, exist_ok=True)
    for result, make in missing.items():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="work-") as work:
            make(pathlib.Path(work)).rename(named(result))
    print(f"make hosts: {named('linux')} and {named('initramfs')}")


if __name__ == "__main__":
    main()
