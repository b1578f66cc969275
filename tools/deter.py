#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs DETER's cases and draws docs/figures/deter-*.svg: from their reports the packets, and below
them what the sender's kernel knew; and how the butterfly's two runs part, also in docs/deter.md."""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.dom.minidom

import pages

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


def run(plan, out):
    """Runs a plan, and returns its report."""
    done = subprocess.run([MIDWIRE, "run", plan, "--out", out], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{plan.name}: {done.stdout}")
    return (out / "report.html").read_text()


def butterfly(plan, work, picture):
    """Draws how a run parts from the one with a nanosecond more."""
    later = work / "later.yaml"
    later.write_text(plan.read_text().replace("delay: 1002ns", "delay: 1003ns"))
    runs = [work / "run", work / "later"]
    for of, out in zip([plan, later], runs):
        run(of, out)
    done = subprocess.run([MIDWIRE, "diff", "--picture", picture, *runs], stdout=subprocess.PIPE, text=True, check=False)
    told = done.stdout[done.stdout.index("Packets"):done.stdout.index("Picture")].strip()
    pages.write("deter.md", "deter", f"```\n{told}\n```\n")


def main():
    """Makes all figures."""
    for plan in sorted((ROOT / "plans/deter").glob("*.yaml")):
        picture = ROOT / f"docs/figures/deter-{plan.stem}.svg"
        with tempfile.TemporaryDirectory() as directory:
            work = pathlib.Path(directory)
            if plan.stem == "butterfly":
                butterfly(plan, work, picture)
            else:
                picture.write_text(figure(run(plan, work / "run")))
        xml.dom.minidom.parse(str(picture))


if __name__ == "__main__":
    main()
