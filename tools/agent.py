#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds midwire-agent, or lints it: it needs libibverbs, its headers, and libclang to read these.

What this machine does not have comes from Debian's packages, which are downloaded and unpacked into
~/.cache/midwire/agent, not installed, so that no privilege is needed.
"""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "hosts"))
import build  # noqa: E402, of hosts/

CACHE = build.CACHE.parent / "agent"
WANTED = "apt install libibverbs-dev libclang-dev, or what your distribution calls them"


def installed():
    """Whether this machine has all of it."""
    headers = os.path.exists("/usr/include/infiniband/verbs.h")
    return headers and any(glob.glob(f"/usr/lib{where}/libclang*.so*") for where in ["64", "/llvm-*/lib", "/*-linux-gnu"])


def packages():
    """The packages of it that are not installed, with those that they need."""
    found = re.search(r"libclang-(\d+)-dev", build.call("apt-cache", "depends", "libclang-dev"))
    if not found:
        sys.exit(f"make agent: apt knows no libclang-dev: {WANTED}")
    names = ["libibverbs-dev", f"libclang1-{found[1]}", f"libclang-common-{found[1]}-dev"]
    lines = build.call("apt-get", "install", "-qq", "--print-uris", "-y", "--reinstall", "--no-install-recommends", *names)
    return [line.split()[1].split("_")[0] for line in lines.splitlines() if line.startswith("'")]


def environment(root):
    """Where the parts are, for the compilers."""
    library = next(root.glob("usr/lib/*/libibverbs.so")).parent
    clang = next(root.glob("usr/lib/llvm-*/lib"))
    headers = next(clang.glob("clang/*/include"))
    # A clang on the PATH may be of another version, whose headers this libclang can't read: bindgen asks
    # `true` for them instead.
    return {"LIBCLANG_PATH": clang, "CLANG_PATH": shutil.which("true"), "LD_LIBRARY_PATH": library,
            "LIBRARY_PATH": library, "BINDGEN_EXTRA_CLANG_ARGS": f"-I{headers} -I{root}/usr/include"}


COMMANDS = {"build": (["build"], []), "lint": (["clippy", "--all-targets"], ["--", "-D", "warnings"])}


def main():
    """Fetches what is not there, and builds or lints."""
    known = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "build")
    if not known:
        sys.exit(f"usage: {sys.argv[0]} [{'|'.join(COMMANDS)}]")
    todo, last = known
    # ibverbs-sys would build all of rdma-core, and then reads the system's headers.
    variables = {"CMAKE": "true"}
    if not installed():
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            sys.exit(f"make agent needs libibverbs with its headers, and libclang: {WANTED}")
        if not CACHE.exists():
            CACHE.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE.parent, prefix="work-") as work:
                work = pathlib.Path(work)
                build.unpack(work / "root", build.download(work / "packages", packages()))
                (work / "root").rename(CACHE)
        variables |= environment(CACHE)
    command = [os.environ.get("CARGO", "cargo"), *todo, "--release", "--locked", "-p", "midwire-agent", "--features", "verbs",
               *last]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {k: str(v) for k, v in variables.items()})
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
