#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lints the RTL: Verilator -Wall over the whole core at both widths, verible's style rules
(rtl/.rules.verible_lint) and its formatter. `--format` rewrites instead of complaining.
Generated files (rtl/regs) are linted by Verilator only, proofs by verible only."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTL = ROOT / "rtl"
SITE = next((ROOT / ".tools/venv/lib").glob("python3*/site-packages"), None)
if SITE is None:
    sys.exit("rtl_lint: no .tools/venv; run `make tools` first")
VERIBLE = SITE / "verible" / "bin"
own = sorted(f for f in RTL.glob("*.sv"))


def sources():
    """Every RTL file, packages first, in the order that they depend on each other."""
    packages = [RTL / "mw_pkg.sv", RTL / "regs/mw_map_pkg.sv", RTL / "regs/mw_regs_pkg.sv"]
    modules = [f for f in own if f not in packages and not f.name.endswith("_proof.sv")]
    return [*packages, RTL / "regs/mw_regs.sv", *modules]


def main():
    if sys.argv[1:] == ["--format"]:
        subprocess.run([VERIBLE / "verible-verilog-format", "--inplace", *own], check=True)
        return 0
    failed = 0
    env = dict(os.environ, VERILATOR_ROOT=str(SITE / "verilator"))
    for width in (512, 64):
        failed |= subprocess.run([SITE / "verilator/bin/verilator_bin", "--lint-only", "-Wall", RTL / "lint.vlt",
                                  *sources(), "--top-module", "mw_core", f"-GDATA_W={width}"], env=env).returncode
    failed |= subprocess.run([VERIBLE / "verible-verilog-lint", f"--rules_config={RTL}/.rules.verible_lint", *own]).returncode
    failed |= subprocess.run([VERIBLE / "verible-verilog-format", "--verify", "--inplace", *own]).returncode
    print("rtl lint: " + ("failed" if failed else f"{len(own)} files clean"))
    return 1 if failed else 0


sys.exit(main())
