#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Synthesizes the core's blocks, and writes what they take and how fast they are.

For UltraScale+ (yosys, `synth_xilinx -family xcup`): LUTs, flip-flops, block RAM, and the logic
depth, the longest path in cells between registers. There is no placer for this family here, so
that these are no post-route figures. For ECP5 (yosys, nextpnr): the same, and the clock that the
block reaches when it is placed and routed on its own in an 85k part of speed 8, its ports left
open. That depends on luck: the one netlist is placed from several seeds, and the median and the
range are told.

A block is what lies below its module, with the parameters that it has in the core; those of SMALL have
smaller tables in the ECP5. What came of a block is kept in target/synth, each seed's clock by itself, and
used again as long as its RTL stays as it is. The exit status is 0 only if every block that was asked
for was synthesized; one that could not be routed is told as such.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTL = ROOT / "rtl"
OUT = ROOT / "target" / "synth"
BIN = ROOT / ".tools/venv/bin"
TARGET_MHZ = 156.25
ROUTE = ["--85k", "--speed", "8", "--package", "CABGA756", "--json", "net.json", "--out-of-context",
         "--freq", str(TARGET_MHZ), "--timing-allow-fail"]
MARK = "<!-- From here on written by `make synth`. -->\n"
# Takes cells that hold a state out of the selection of those that a path goes through.
CLOCKED = {family: " ".join(f"*/t:{cell} %d" for cell in cells.split()) for family, cells in (
    ("xcup", "FD?E RAMB* URAM* SRL*"), ("ecp5", "TRELLIS_FF DP16KD PDPW16KD"))}
# An FPGA's RAM starts at zero; to unroll this loop takes the front end for ever.
INITIAL = "  initial for (int i = 0; i < (1 << ROWS_LOG2); i++) mem[i] = '0;\n"

# Module: (what it does, parameters besides DATA_W, of a lane or of the card). DATA_W is given to
# those that have it; {wide} stands for 10 at 512 bits and 13 at 64.
BLOCKS = {
    "mw_ingress": ("frames from the MAC", "", "lane"),
    "mw_parse": ("headers", "", "lane"),
    "mw_track": ("connections", "", "card"),
    "mw_match": ("events, with rules", "", "lane"),
    "mw_rules": ("rules alone", "", "lane"),
    "mw_mend": ("checksums of edits", "-GFIFO_LOG2={wide}", "lane"),
    "mw_act": ("edits", "", "lane"),
    "mw_hold": ("delayed frames", "-GSLOTS_LOG2=6", "lane"),
    "mw_inject": ("frames that the card makes", "", "lane"),
    "mw_egress": ("frames to the MAC", "", "lane"),
    "mw_tap": ("records and snapshots", "-GSNAP_LOG2={wide}", "lane"),
    "mw_record_mux": ("one stream of records", "", "card"),
    "mw_block_writer": ("DMA", "", "card"),
    "mw_control": ("registers", "", "card"),
}
HEADINGS = {"xcup": "\n## UltraScale+, not post-route\n", "ecp5": "\n## ECP5, placed and routed block by block\n"}
# With the tables of the card they need more memory than the ECP5 has: 256 connections, events and
# rows, 16 actions, 4 rules, 2 selectors, 4 frames that are held, 2048 beats of snapshots.
SMALL = {
    "mw_track": "-GCONNS_LOG2=8 -GFLOW_ROWS_LOG2=8 -GSELECTORS=2",
    "mw_match": "-GSLOTS_LOG2=8 -GEXACT_ROWS_LOG2=8 -GPAGE_ROWS_LOG2=8 -GACTIONS_LOG2=4 -GRULES=4",
    "mw_rules": "-GACTIONS_LOG2=4 -GRULES=4",
    "mw_hold": "-GSLOTS_LOG2=2 -GBEATS_LOG2=11",
    "mw_tap": "-GSNAP_LOG2=11",
}


def sources(name):
    """The RTL of a block and all below it: texts by file, in the order of reading."""
    paths = {p.stem: p for p in [*RTL.glob("mw_*.sv"), *RTL.glob("regs/*.sv")] if not p.stem.endswith("_proof")}
    first = ["mw_pkg", "mw_map_pkg", "mw_regs_pkg"]
    found, texts = [*first, name], {}
    for module in found:
        text = paths[module].read_text()
        if module == "mw_ram":
            if text.count(INITIAL) != 1:
                sys.exit("synth: rtl/mw_ram.sv does not begin at zero as this program expects")
            text = text.replace(INITIAL, "")
        texts[f"{module}.sv"] = text
        # A module that a comment names is not below this one.
        code = re.sub(r"//.*", "", text)
        found += sorted({m for m in re.findall(r"\bmw_\w+", code) if m in paths} - set(found))
    return texts


def call(work, limit, log, tool, *arguments):
    """Runs a tool, whose output it leaves in a file unless it failed or took too long; whether it did its work."""
    try:
        p = subprocess.run([BIN / f"yowasp-{tool}", *arguments], cwd=work, text=True, timeout=limit,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return False
    if p.returncode == 0:
        (work / log).write_text(p.stdout)
    return p.returncode == 0


def synthesize(name, width, family, limit, seeds):
    """Cells of a block by type, its logic depth, and for ECP5 its clocks in MHz, of those seeds that were routed."""
    work = OUT / f"{name}_{width}_{family}"
    texts = sources(name)
    parameters = BLOCKS[name][1].format(wide=10 if width == 512 else 13)
    if family == "ecp5":
        parameters = SMALL.get(name, parameters)
    if re.search(r"parameter int unsigned DATA_W\b", texts[f"{name}.sv"]):
        parameters += f" -GDATA_W={width}"
    target = {"xcup": f"synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {name}",
              "ecp5": f"synth_ecp5 -top {name} -json net.json"}[family]
    script = (f"read_slang --threads 1 --top {name} {parameters} {' '.join(texts)}; {target}; "
              f"tee -o stat.json stat -json; tee -o path.txt ltp */* {CLOCKED[family]}")
    # A seed is no input of the netlist: the logs say by their names which are done.
    inputs = json.dumps([script, texts, ROUTE])
    kept = work / "inputs.json"
    if not kept.exists() or kept.read_text() != inputs:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for file, text in texts.items():
            (work / file).write_text(text)
        if not call(work, limit, "yosys.log", "yosys", "-q", "-p", script):
            return None
        kept.write_text(inputs)
    clocks = []
    for seed in range(1, seeds + 1) if family == "ecp5" else ():
        log = f"seed_{seed}.log"
        if (work / log).exists() or call(work, limit, log, "nextpnr-ecp5", *ROUTE, "--seed", str(seed)):
            clocks.append(float(re.findall(r"Max frequency for clock.*?: ([\d.]+) MHz", (work / log).read_text())[-1]))
    cells = collections.Counter(json.loads((work / "stat.json").read_text())["design"]["num_cells_by_type"])
    depth = int(re.search(r"length=(\d+)", (work / "path.txt").read_text())[1])
    return cells, depth, sorted(clocks)


def count(cells, *patterns):
    return sum(n for cell, n in cells.items() if any(re.fullmatch(p, cell) for p in patterns))


COLUMNS = {"xcup": ["LUT", "FF", "RAMB36", "RAMB18", "URAM", "logic depth"],
           "ecp5": ["LUT4", "FF", "block RAM", "logic depth", "routed", "MHz", "from - to"]}


def row(family, name, result, seeds):
    """A block's row of the family's tables."""
    does, _, scope = BLOCKS[name]
    head = f"| {name} | {does} | {scope} | "
    if result is None:
        return head + "not synthesized within the limit |\n"
    cells, depth, clocks = result
    if family == "xcup":
        figures = [count(cells, r"LUT\d"), count(cells, r"FD.E"), count(cells, "RAMB36E2"), count(cells, "RAMB18E2"),
                   count(cells, "URAM288"), depth]
    else:
        ram = count(cells, "TRELLIS_DPR16X4")
        figures = [count(cells, "LUT4") + 4 * ram + 2 * count(cells, "CCU2C"), count(cells, "TRELLIS_FF"),
                   count(cells, "DP16KD", "PDPW16KD"), depth, f"{len(clocks)} of {seeds}",
                   *((f"{statistics.median(clocks):.1f}", f"{clocks[0]:.1f} - {clocks[-1]:.1f}") if clocks else "--")]
    return head + " | ".join(map(str, figures)) + " |\n"


def written(page):
    """The rows of a page, by family, width and block."""
    rows, families = {}, {heading: family for family, heading in HEADINGS.items()}
    for line in page.splitlines(keepends=True):
        if f"\n{line}" in families:
            family = families[f"\n{line}"]
        elif m := re.fullmatch(r"### (\d+) bits\n", line):
            width = int(m[1])
        elif m := re.match(r"\| (mw_\w+) \|", line):
            rows[family, width, m[1]] = line
    return rows


def tables(rows):
    """All tables, of rows by family, width and block."""
    for family, heading in HEADINGS.items():
        widths = sorted({w for f, w, _ in rows if f == family}, reverse=True)
        if widths:
            yield heading
        for width in widths:
            columns = COLUMNS[family]
            yield (f"\n### {width} bits\n\n| block | does | of a | {' | '.join(columns)} |\n"
                   f"|---|---|---|{'--:|' * len(columns)}\n")
            yield from (rows[family, width, name] for name in BLOCKS if (family, width, name) in rows)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", metavar="mw_x", help="blocks; none: all")
    ap.add_argument("--family", choices=("xcup", "ecp5"), action="append", help="only this family")
    ap.add_argument("--width", type=int, choices=(64, 512), action="append", help="only this width of UltraScale+")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    ap.add_argument("--limit", type=int, default=900, metavar="S", help="seconds for one tool (%(default)s)")
    ap.add_argument("--seeds", type=int, default=3, metavar="N", help="starts of ECP5's placer (%(default)s)")
    ap.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="write the tables into this page")
    args = ap.parse_args()
    if missing := set(args.names) - set(BLOCKS):
        sys.exit(f"synth: no block {', '.join(sorted(missing))}; there are {', '.join(BLOCKS)}")
    names = args.names or list(BLOCKS)
    families = args.family or ["xcup", "ecp5"]
    for tool in ["yosys", "nextpnr-ecp5"] if "ecp5" in families else ["yosys"]:
        if not (BIN / f"yowasp-{tool}").exists():
            sys.exit(f"synth: no {tool} in .tools/venv; `make synth` installs it")
    # ECP5 has no transceivers for 100G: its core is the narrow one.
    parts = [(f, w) for f in families for w in ((64,) if f == "ecp5" else args.width or (512, 64))]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = {(f, w, n): pool.submit(synthesize, n, w, f, args.limit, args.seeds) for f, w in parts for n in names}
        for (family, width, name), run in runs.items():
            result = run.result()
            failed += result is None
            clocks = "" if result is None or family == "xcup" else f", {result[2]} MHz"
            print(f"{family} {width} {name}: {'FAILED' if result is None else f'depth {result[1]}{clocks}'}", flush=True)
    rows = {(f, w, n): row(f, n, run.result(), args.seeds) for (f, w, n), run in runs.items()}
    print("".join(tables(rows)))
    if args.write:
        head, _, old = args.write.read_text().partition(MARK)
        # What was not asked for stays.
        args.write.write_text(head + MARK + "".join(tables(written(old) | rows)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
