#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Proves the properties that lie beside the RTL, and shows that the proofs can fail.

The proof of module `mw_x` is `rtl/mw_x_proof.sv`: a module of assertions that is bound to
every instance of mw_x. Comment lines at its head steer it:

    // uses: mw_fifo mw_fifo_proof      files besides mw_pkg, mw_x and the proof, in order, that are
                                        in rtl/ or rtl/regs/
    // any: mw_y                        the outputs of mw_y have any values in every clock
    // induction: 3 -GWIDTH=66          prove by k-induction, k at most 3, with these parameters
    // cover: 20 -GWIDTH=2              every cover statement must be reached within 20 clocks
    // with: mw_ram: old => new         in all runs, this text stands in rtl/mw_ram.sv for that
    // small: mw_pkg: old => new        the same, in cover and mutant runs only
    // mutant: mw_x: old => new         with this fault an assertion must fail within the depth of
                                        the first `cover` and with its parameters

A signal of a proof named `anyseq_*` has any value in every clock, one named `anyconst_*` has
one value, any, in all of them. Assertions named `aux_*` only make the others inductive, and do
not count against mutants, nor do those of proofs inside the module. Each run begins with a clock
of reset, which can come again at any time. What a module assumes of its user is assumed only
while it is at the top; where it is inside another it is an obligation of that one. Assumptions named
`part_*` say what its own parts do, as their proofs show, and hold there, too.

A proof holds when all runs pass, all cover statements are reached and all mutants fail. The
exit status is 0 only if proofs ran and all hold.
"""
import argparse
import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RTL = ROOT / "rtl"
OUT = ROOT / "target" / "prove"
BIN = ROOT / ".tools/venv/bin"
SOLVER = ROOT / "tools/bin"
KEYS = ("uses", "any", "induction", "cover", "with", "small", "mutant")
MODES = {"induction": "prove", "cover": "cover", "mutant": "bmc"}
CLASSES = ((2, "< 2 s"), (10, "< 10 s"), (60, "< 1 min"), (300, "< 5 min"), (float("inf"), "> 5 min"))
MARK = "<!-- From here on written by `make prove`. -->\n"

SBY = """[options]
mode {mode}
depth {depth}
timeout {limit}
[engines]
smtbmc bitwuzla
[script]
read_slang --threads 1 --top {top} {boxes} {parameters} {files}
select -assert-none */t:$check */r:FLAVOR=assume %i */c:*proof.* %d
cutpoint */w:*anyconst_*
chtype -set $anyconst */t:$anyseq
cutpoint */w:*anyseq_*
cutpoint -blackbox
prep -top {top}
chformal -assume -assume2assert */c:*.*proof.* */c:*proof.part_* %d
chformal -cover -remove */c:*.*proof.*
{prune}
fminit -seq rst 1'1,1'z {top}
[files]
{lines}
"""


@dataclasses.dataclass
class Run:
    """One call of sby."""
    top: str
    kind: str
    number: int  # among the proof's runs of this kind
    depth: int
    parameters: str
    files: list
    edits: list  # (file, old text, new text)
    boxes: list  # modules of which only the ports are taken

    def name(self):
        what = self.parameters.replace("-G", "") if self.kind != "mutant" else "`{}` → `{}`".format(*self.edits[-1][1:])
        return f"{self.kind} {self.depth}", what

    def go(self, limit):
        """Returns sby's status and log."""
        work = OUT / self.top / f"{self.kind}{self.number}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        texts = {f: next(p for p in (RTL / f, RTL / "regs" / f) if p.exists()).read_text() for f in self.files}
        for file, old, new in self.edits:
            if texts.get(f"{file}.sv", "").count(old) != 1:
                return "ERROR", f"ERROR: `{old}` is not exactly once in rtl/{file}.sv"
            texts[f"{file}.sv"] = texts[f"{file}.sv"].replace(old, new)
        for name, text in texts.items():
            # Without a label a statement has no path by which it is known whose it is.
            count = itertools.count()
            (work / name).write_text(re.sub(r"(?<!: )\bassume \(", lambda _: f"assumed_{next(count)} : assume (", text)
                                     if name.endswith("_proof.sv") else text)
        (work / "run.sby").write_text(SBY.format(
            mode=MODES[self.kind], depth=self.depth, limit=limit, top=self.top, parameters=self.parameters,
            files=" ".join(self.files), lines="\n".join(self.files),
            boxes=" ".join(f"--blackboxed-module {m}" for m in self.boxes),
            prune="chformal -assert -remove */c:*proof*.aux_* */c:*.proof.*" if self.kind == "mutant" else ""))
        tools = [f"--{t.removeprefix('yosys-')}={BIN}/yowasp-{t}" for t in ("yosys", "yosys-smtbmc", "yosys-witness")]
        p = subprocess.run([BIN / "yowasp-sby", *tools, "-f", "run.sby"], cwd=work, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env=dict(os.environ, PATH=f"{BIN}:{SOLVER}:{os.environ['PATH']}"))
        status = work / "run" / "status"
        return status.read_text().split()[0] if status.exists() else "ERROR", p.stdout

    def judge(self, status, log):
        """Whether the run shows what it is to show, and the evidence in a few words."""
        if self.kind == "mutant":
            failed = re.search(r"failed assertion (\S+)", log)
            ok = status == "FAIL" and failed is not None
            return ok, f"{failed[1].split('.')[-1]} fails" if ok else "not noticed"
        if self.kind == "induction":
            steps = re.findall(r"induction: .*Trying induction in step (\d+)", log)
            ok = status == "PASS" and "successful proof by k-induction" in log and steps != []
            return ok, f"proved, k = {self.depth - int(steps[-1])}" if ok else "not proved"
        reached = re.findall(r"summary:\s+reached cover statement (\S+)", log)
        return status == "PASS" and reached != [], f"{len(reached)} reached"


@dataclasses.dataclass
class Proof:
    name: str
    text: str  # what is proved, in words
    runs: list


def load(path):
    """Reads what the head of a proof asks for."""
    def bad(line, why):
        sys.exit(f"prove: {path.name}: `{line}` {why}")

    def edit(line):
        m = re.fullmatch(r"(\w+): (.*) => ?(.*)", line) or bad(line, "is not of the form `file: old => new`")
        return m.groups()

    def runs(kind):
        for line in keys[kind]:
            m = re.fullmatch(r"(\d+)((?: -G\w+=\w+)*)", line) or bad(line, "is not a depth and parameters")
            yield int(m[1]), m[2].strip(), [*edits, *small] if kind == "cover" else edits

    name = path.name.removesuffix("_proof.sv")
    head = re.match(r"(?://.*\n)*", path.read_text()).group().splitlines()[1:]
    keys, text = {key: [] for key in KEYS}, []
    for line in head:
        m = re.fullmatch(rf"// ({'|'.join(KEYS)}): *(.*)", line)
        keys[m[1]].append(m[2]) if m else text.append(line.removeprefix("//").strip())
    if not (keys["induction"] and keys["cover"] and keys["mutant"]):
        sys.exit(f"prove: {path.name}: a proof needs `induction`, `cover` and `mutant`")
    edits, small = ([edit(line) for line in keys[key]] for key in ("with", "small"))
    asked = {kind: list(runs(kind)) for kind in ("induction", "cover")}
    depth, parameters, _ = asked["cover"][0]
    asked["mutant"] = [(depth, parameters, [*edits, *small, edit(line)]) for line in keys["mutant"]]
    boxes = " ".join(keys["any"]).split()
    files = [f"{f}.sv" for f in ["mw_pkg", *" ".join(keys["uses"]).split(), name, f"{name}_proof"]]
    return Proof(name, "\n".join(text).strip(), [Run(name, kind, i, *a[:2], files, a[2], boxes)
                                                 for kind, lines in asked.items() for i, a in enumerate(lines)])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", metavar="mw_x", help="modules to prove; none: all")
    ap.add_argument("--list", action="store_true", help="name the proofs and exit")
    ap.add_argument("--only", choices=list(MODES), help="only these runs")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    ap.add_argument("--limit", type=int, default=300, metavar="S", help="seconds for one run (%(default)s)")
    ap.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="if all hold, write what was shown of these modules into this page")
    args = ap.parse_args()
    paths = {p.name.removesuffix("_proof.sv"): p for p in sorted(RTL.glob("*_proof.sv"))}
    if missing := set(args.names) - set(paths):
        sys.exit(f"prove: no proof of {', '.join(sorted(missing))} in rtl/")
    if args.write and args.only:
        sys.exit("prove: a page is written of all runs of a proof")
    if args.list:
        print("\n".join(paths))
        return 0
    if not (BIN / "yowasp-sby").exists() or not any(BIN.parent.glob("lib/python3*/site-packages/bitwuzla*")):
        sys.exit("prove: no sby or no bitwuzla in .tools/venv; run `make tools` first")
    proofs = [load(path) for name, path in paths.items() if not args.names or name in args.names]
    runs = [r for p in proofs for r in p.runs if args.only in (None, r.kind)]
    rows, failed = {p.name: [] for p in proofs}, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for run, (status, log) in zip(runs, pool.map(lambda r: r.go(args.limit), runs)):
            ok, evidence = run.judge(status, log)
            cpu = int((re.findall(r"Elapsed process time.*\((\d+)\)", log) or ["0"])[0])
            took = next(name for limit, name in CLASSES if cpu < limit)
            row = [*run.name(), evidence, took]
            rows[run.top].append(row)
            failed += not ok
            print(f"{'ok  ' if ok else 'FAIL'} {run.top}: {', '.join(filter(None, row))}", flush=True)
            if not ok:
                print(f"     {status} in {OUT / run.top}/{run.kind}{run.number}")
                print(*re.findall(r"(?:summary:  +(?!reached)|base: .*(?=ERROR)|^ERROR).*", log, re.M), sep="\n", flush=True)
    print(f"{len(runs) - failed} runs passed, {failed} failed; {len(proofs)} proofs")
    if args.write and runs and not failed:
        head, _, old = args.write.read_text().partition(MARK)
        # What was not asked for stays, as long as there is such a proof.
        sections = {s.partition("\n")[0]: s for s in old.split("\n## ")[1:]}
        for p in proofs:
            table = "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows[p.name])
            sections[p.name] = (f"{p.name}\n{p.text}\n\n| run, depth | parameters or fault | shown | CPU time |\n"
                                f"|---|---|---|---|\n{table}")
        args.write.write_text(head + MARK + "".join(f"\n## {sections[name]}" for name in paths if name in sections))
    return 0 if runs and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
