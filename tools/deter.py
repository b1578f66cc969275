#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs DETER's cases and draws docs/figures/deter-*.svg from their reports: the packets, and below
them what the sender's kernel knew."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIDWIRE = ROOT / "target/release/midwire"


def figure(page):
    """The overview of what A sends, as one picture."""
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    colours = "".join(re.findall(r"^(?::root|@media).*$", style, re.M))
    sent = page.split("a-to-b: bytes over time")[1].split("<h3>")[0]
    parts, top = [], 0
    for width, height, inside in re.findall(r'<svg viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>', sent, re.S):
        parts.append(f'<g transform="translate(0 {top})">{inside}</g>')
        top += int(height)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" font-family="sans-serif" font-size="12">\n'
            "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n"
            "<!-- Drawn by tools/deter.py; do not edit. -->\n"
            f"<style>{colours}text{{fill:var(--soft)}}</style>\n"
            f'<rect width="{width}" height="{top}" fill="var(--panel)"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    """Makes all figures."""
    for plan in sorted((ROOT / "plans/deter").glob("*.yaml")):
        with tempfile.TemporaryDirectory() as work:
            run = pathlib.Path(work) / "run"
            done = subprocess.run([MIDWIRE, "run", plan, "--out", run], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(f"{plan.name}: {done.stdout}")
            page = (run / "report.html").read_text()
        (ROOT / f"docs/figures/deter-{plan.stem}.svg").write_text(figure(page))


if __name__ == "__main__":
    main()
