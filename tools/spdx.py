#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every source file says its licence in its first lines; prints those that do not, exit 1.

A patch of Linux has Linux's licence."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0 OR MIT"
PLAIN = {".md", ".lock", ".json"}  # prose, and formats without comments
NAMES = {"LICENSE-MIT", "LICENSE-APACHE", ".gitignore"}
OTHERS = {"hosts/kernel.patch": "SPDX-License-Identifier: GPL-2.0"}

files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                       capture_output=True, text=True, check=True).stdout.split("\n")
bad = []
for name in filter(None, files):
    path = ROOT / name
    if path.suffix in PLAIN or path.name in NAMES or not path.is_file():
        continue
    if OTHERS.get(name, LINE) not in path.read_bytes()[:600].decode("utf-8", "replace"):
        bad.append(name)
for name in bad:
    print(f"{name}: no line '{OTHERS.get(name, LINE)}'")
print(f"licence lines: {len(files)} files looked at, {len(bad)} without")
sys.exit(bool(bad))
