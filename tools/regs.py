#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Generates everything that follows from the register map rtl/regs/midwire.rdl.

    tools/regs.py           writes the files
    tools/regs.py --check   exits 1 and names those that are stale

Made from it: the AXI4-Lite slave and its package (rtl/regs/), the hash of the map by which
driver and card know that they agree (rtl/regs/mw_map_pkg.sv), the driver's constants
(host-driver/src/regs.rs) and the page docs/registers.html.
"""
import argparse
import hashlib
import html
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RDL = ROOT / "rtl/regs/midwire.rdl"
VENV = ROOT / ".tools/venv"

if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
    python = VENV / "bin/python3"
    if not python.exists():
        sys.exit("regs: no tools in .tools/venv; run `make tools` first")
    os.execv(python, [str(python), __file__, *sys.argv[1:]])

from systemrdl import RDLCompiler  # noqa: E402
from systemrdl.node import RegNode  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0 OR MIT\n//\n"
ORIGIN = "Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit."


def map_hash():
    return hashlib.sha256(RDL.read_bytes()).hexdigest()[:8]


def compile_map():
    rdl = RDLCompiler()
    rdl.compile_file(str(RDL))
    return rdl.elaborate().top


def sentence(node):
    return node.get_property("desc", default="") or ""


def is_plain(reg):
    """A register of one field that fills it: the register's text says it all."""
    fields = list(reg.fields())
    return len(fields) == 1 and fields[0].width == reg.get_property("regwidth")


def regblock():
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [VENV / "bin/peakrdl", "regblock", RDL, "-o", out, "--cpuif", "axi4-lite-flat", "--module-name", "mw_regs",
             "--package-name", "mw_regs_pkg", "--default-reset", "rst", "--addr-width", "12"],
            check=True,
        )
        for name in ("mw_regs.sv", "mw_regs_pkg.sv"):
            text = (pathlib.Path(out) / name).read_text()
            yield f"rtl/regs/{name}", f"{SPDX}// {ORIGIN}\n{text}"


def map_pkg():
    value = map_hash()
    return f"""{SPDX}// {ORIGIN}
package mw_map_pkg;
  // First 32 bits of SHA-256 of the register map's source.
  localparam logic [31:0] MapHash = 32'h{value[:4]}_{value[4:]};
endpackage
"""


def rust_reg(reg, indent, offset):
    pad = " " * indent
    name = reg.inst_name.upper()
    wide = " 64 bits." if reg.get_property("regwidth") == 64 else ""
    text = sentence(reg) or f"See [`{reg.inst_name}`]"
    lines = [f"{pad}/// {text}.{wide}\n"]
    if reg.is_array:
        (count,) = reg.array_dimensions
        lines[0] = f"{pad}/// First of {count} words, {reg.array_stride} bytes apart.\n"
    lines.append(f"{pad}pub const {name}: u32 = {offset:#x};\n")
    return "".join(lines)


def rust_fields(reg):
    out = [f"\n/// Fields of [`{reg.inst_name.upper()}`].\npub mod {reg.inst_name} {{\n"]
    for f in reg.fields():
        out.append(f"    /// {sentence(f)}.\n")
        name = f.inst_name.upper()
        if f.width == 1:
            out.append(f"    pub const {name}: u32 = 1 << {f.low};\n")
        else:
            out.append(f"    pub const {name}_SHIFT: u32 = {f.low};\n    pub const {name}_WIDTH: u32 = {f.width};\n")
    out.append("}\n")
    return "".join(out)


def rust(top):
    value = map_hash()
    out = [
        SPDX[:-3],
        f"//! Offsets and fields of the card's registers in BAR 0.\n//!\n//! {ORIGIN}\n\n",
        "/// First 32 bits of SHA-256 of the register map's source; the register\n",
        f"/// [`MAP_HASH`] of a card that fits reads as this.\npub const EXPECTED_MAP_HASH: u32 = 0x{value[:4]}_{value[4:]};\n",
        f"\n/// Bytes that the registers take in BAR 0.\npub const SIZE: u32 = {top.size:#x};\n\n",
    ]
    after = []
    for node in top.children(unroll=False):
        if isinstance(node, RegNode):
            out.append(rust_reg(node, 0, node.raw_address_offset))
            if not is_plain(node):
                after.append(rust_fields(node))
            continue
        (count,) = node.array_dimensions
        name = node.inst_name
        regs = list(node.children())
        lines = [
            f"\n/// Registers of each {name}; [`{name}::at`] gives their offsets in the BAR.\npub mod {name} {{\n",
            f"    pub const COUNT: u32 = {count};\n\n",
            f"    /// Offset of register `reg` of {name} `n`.\n    pub const fn at(n: u32, reg: u32) -> u32 {{\n",
            f"        {node.raw_address_offset:#x} + n * {node.array_stride:#x} + reg\n    }}\n\n",
        ]
        lines += [rust_reg(r, 4, r.raw_address_offset) for r in regs]
        lines.append(f"\n    /// Name and register of each, all 64 bits.\n    pub const ALL: [(&str, u32); {len(regs)}] = [\n")
        lines += [f'        ("{r.inst_name}", {r.inst_name.upper()}),\n' for r in regs]
        lines.append("    ];\n}\n")
        after.append("".join(lines))
    return "".join(out + after)


def page(top):
    def row(cells, tag="td", cls=""):
        return f"<tr{cls}>" + "".join(f"<{tag}>{c}</{tag}>" for c in cells) + "</tr>\n"

    def access(node):
        return "read" if not node.is_sw_writable else "read, write"

    def rows(node, prefix, base):
        for reg in node.children(unroll=False):
            if not isinstance(reg, RegNode):
                continue
            name = prefix + reg.inst_name
            where = f"0x{base + reg.raw_address_offset:03x}"
            if reg.is_array:
                name += f"[{reg.array_dimensions[0]}]"
                where += f" + {reg.array_stride} n"
            bits = reg.get_property("regwidth")
            yield row((where, f"<code>{name}</code>", bits, access(next(iter(reg.fields()))), html.escape(sentence(reg))))
            if is_plain(reg):
                continue
            for f in reg.fields():
                span = f"{f.high}:{f.low}" if f.width > 1 else f.low
                yield row(("", f"<code>.{f.inst_name}</code>", f"[{span}]", access(f), html.escape(sentence(f))), cls=' class="field"')

    head = row(("Offset", "Register", "Bits", "Access", "Meaning"), "th")
    out = [
        f"""<!DOCTYPE html>
<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->
<!-- {ORIGIN} -->
<html lang="en">
<meta charset="utf-8">
<title>midwire registers</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; width: 100%; margin-bottom: 2em; }}
th, td {{ text-align: left; vertical-align: top; padding: .25em .6em; border-bottom: 1px solid #ddd; }}
td:first-child, td:nth-child(3) {{ font-family: ui-monospace, monospace; white-space: nowrap; }}
.field td {{ color: #555; border-bottom-style: dotted; }}
</style>
<h1>Registers of the card</h1>
<p>BAR 0 of the PCI device, {top.size} bytes, 32-bit accesses. Registers of 64 bits are little endian, low word
at the lower offset; they and the counters hold still between two writes of <code>control.latch</code>.
Map hash <code>0x{map_hash()}</code>.</p>
<table>
{head}""",
        *rows(top, "", 0),
        "</table>\n",
    ]
    for node in top.children(unroll=False):
        if isinstance(node, RegNode):
            continue
        base, stride, count = node.raw_address_offset, node.array_stride, node.array_dimensions[0]
        out.append(f"<h2>{node.inst_name}[{count}]</h2>\n<p>Number n starts at 0x{base:03x} + 0x{stride:x} n; offsets of number 0:</p>\n<table>\n{head}")
        out += rows(node, "", base)
        out.append("</table>\n")
    out.append("</html>\n")
    return "".join(out)


def main():
    args = argparse.ArgumentParser(description="Generate RTL, Rust and HTML from the register map.")
    args.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that are stale")
    check = args.parse_args().check
    top = compile_map()
    files = dict(regblock())
    files["rtl/regs/mw_map_pkg.sv"] = map_pkg()
    files["host-driver/src/regs.rs"] = rust(top)
    files["docs/registers.html"] = page(top)
    stale = [n for n, text in files.items() if not (ROOT / n).exists() or (ROOT / n).read_text() != text]
    if check:
        for name in stale:
            print(f"regs: {name} is stale; run tools/regs.py")
        sys.exit(1 if stale else 0)
    for name in stale:
        (ROOT / name).write_text(files[name])
        print(f"regs: wrote {name}")


main()
