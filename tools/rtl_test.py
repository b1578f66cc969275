#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds and runs the module tests that lie beside the RTL.

A test of module `mw_x` is `rtl/mw_x_test.cpp`, an ordinary main() around the verilated
module; it exits 0 when all held and prints what did not. Comment lines at its head steer it:

    // verilate: -GDATA_W=64          one build for each such line (none: the defaults)
    // top: mw_x                      when the module is not the file's name
    // uses: mw_pkg mw_fifo           RTL files besides the module's own, in order

Objects are kept in target/rtl-test and rebuilt when a source changes. Assertions of the RTL
are on. Ends with "N passed, M failed"; the exit status is 0 only if tests ran and none failed.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTL = ROOT / "rtl"
OUT = ROOT / "target" / "rtl-test"
CXX = os.environ.get("CXX", "g++")
DEFINES = [f"-DVM_{n}=0" for n in ("COVERAGE", "SC", "TIMING", "TRACE", "TRACE_FST", "TRACE_VCD", "TRACE_SAIF")]
CXXFLAGS = ["-std=c++17", "-O1", "-w", *DEFINES]


def verilator():
    for site in sorted((ROOT / ".tools/venv/lib").glob("python3*/site-packages/verilator")):
        return site
    sys.exit("rtl_test: no verilator in .tools/venv; run `make tools` first")


def run(cmd, **kw):
    p = subprocess.run(cmd, capture_output=True, text=True, **kw)
    if p.returncode:
        raise RuntimeError(f"{' '.join(map(str, cmd))}\n{p.stdout}{p.stderr}")


def head(bench, key):
    return re.findall(rf"^// {key}:[ \t]*(.*)$", bench.read_text(), re.M)


def runtime(vroot):
    """The parts of Verilator's library that every test links."""
    objs = []
    for src in ("verilated.cpp", "verilated_threads.cpp"):
        obj = OUT / (src + ".o")
        if not obj.exists():
            obj.parent.mkdir(parents=True, exist_ok=True)
            run([CXX, *CXXFLAGS, f"-I{vroot}/include", f"-I{vroot}/include/vltstd", "-c", vroot / "include" / src, "-o", obj])
        objs.append(obj)
    return objs


def build(vroot, objs, bench, flags):
    name = bench.name.removesuffix("_test.cpp")
    top = (head(bench, "top") or [name])[0].strip()
    uses = " ".join(head(bench, "uses")).split()
    files = [RTL / "mw_pkg.sv"] + [RTL / f"{u}.sv" for u in uses if u != "mw_pkg"]
    if (RTL / f"{top}.sv") not in files:
        files.append(RTL / f"{top}.sv")
    shared = sorted((RTL / "test").glob("*.h"))
    key = hashlib.sha256(flags.encode())
    for f in [*files, bench, *shared, RTL / "lint.vlt", pathlib.Path(__file__)]:
        key.update(f.read_bytes())
    tag = re.sub(r"\W+", "_", flags).strip("_")
    out = OUT / (name + ("-" + tag if tag else ""))
    exe = out / "test"
    stamp = out / "stamp"
    if exe.exists() and stamp.exists() and stamp.read_text() == key.hexdigest():
        return exe
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.cpp"):
        old.unlink()
    env = dict(os.environ, VERILATOR_ROOT=str(vroot))
    run([vroot / "bin/verilator_bin", "--cc", "-Wall", "--assert", "-O3", "--x-assign", "unique",
         "--x-initial", "unique", RTL / "lint.vlt", *files, "--top-module", top, "--prefix", "Vtop",
         "--Mdir", out, *flags.split()], env=env)
    run([CXX, *CXXFLAGS, f"-I{vroot}/include", f"-I{vroot}/include/vltstd", f"-I{out}", f"-I{RTL}/test",
         bench, *out.glob("Vtop*.cpp"), *objs, "-o", exe, "-lpthread"])
    stamp.write_text(key.hexdigest())
    return exe


def one(vroot, objs, bench, flags):
    label = bench.name.removesuffix("_test.cpp") + (f" [{flags}]" if flags else "")
    try:
        exe = build(vroot, objs, bench, flags)
        p = subprocess.run([exe], capture_output=True, text=True, timeout=300)
        return label, p.returncode == 0, p.stdout + p.stderr
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
        return label, False, str(e)


def main():
    vroot = verilator()
    names = sys.argv[1:]
    benches = [b for b in sorted(RTL.glob("*_test.cpp")) if not names or b.name.removesuffix("_test.cpp") in names]
    missing = set(names) - {b.name.removesuffix("_test.cpp") for b in benches}
    if missing:
        sys.exit(f"rtl_test: no test for {', '.join(sorted(missing))} in rtl/")
    objs = runtime(vroot)
    jobs = [(b, f.strip()) for b in benches for f in (head(b, "verilate") or [""])]
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for label, ok, text in pool.map(lambda j: one(vroot, objs, *j), jobs):
            print(f"{'ok  ' if ok else 'FAIL'} {label}", flush=True)
            if not ok:
                print(text[-4000:], flush=True)
            passed, failed = passed + ok, failed + (not ok)
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed and not failed else 1)


main()
