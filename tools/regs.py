#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Generates everything that follows from the register map rtl/regs/midwire.rdl.

    tools/regs.py           writes the files
    tools/regs.py --check   exits 1 and names those that are stale

Made from it: the AXI4-Lite slave and its package (rtl/regs/), the hash of the map by which
driver and card know that they agree (rtl/regs/mw_map_pkg.sv), the driver's constants
(host-driver/src/regs.rs), those for C++ (rtl/regs/mw_regs.h) and the page docs/registers.html.
"""
import argparse
import hashlib
import html
import os
import pathlib
import sys

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


def places(node):
    """Each register of a register file or map: name, array count or 0, and byte offset."""
    for reg in node.children(unroll=False):
        if isinstance(reg, RegNode):
            yield reg, reg.array_dimensions[0] if reg.is_array else 0


def width(bits):
    return "logic       " if bits == 1 else f"logic [{bits - 1}:0]"


def members(node, writable):
    """Struct members for the registers of `node` that the core reads or drives."""
    out = []
    for reg, count in places(node):
        fields = [f for f in reg.fields() if f.is_sw_writable == writable]
        if not fields:
            continue
        dims = f"[{count}]" if count else ""
        if is_plain(reg):
            out.append(f"    {width(fields[0].width)} {reg.inst_name}{dims};\n")
        else:
            out += [f"    {width(f.width)} {reg.inst_name}_{f.inst_name};\n" for f in fields]
    return "".join(out)


def regs_pkg(top):
    files = [n for n in top.children(unroll=False) if not isinstance(n, RegNode)]
    out = [f"{SPDX}// {ORIGIN}\n//\n// What the registers tell the core (out_t) and what the core shows in them (in_t).\npackage mw_regs_pkg;\n"]
    for f in files:
        out.append(f"  typedef struct {{\n{members(f, False)}  }} {f.inst_name}_in_t;\n\n")
    inner = "".join(f"    {f.inst_name}_in_t {f.inst_name}[{f.array_dimensions[0]}];\n" for f in files)
    out.append(f"  typedef struct {{\n{members(top, False)}{inner}  }} in_t;\n\n")
    out.append(f"  typedef struct {{\n{members(top, True)}  }} out_t;\nendpackage\n")
    return "".join(out)


def words(reg, offset, path):
    """Word offset and what it reads as, for each 32-bit word of a register at a byte offset."""
    fields = list(reg.fields())
    side = "out." if fields[0].is_sw_writable else "in."
    if is_plain(reg):
        bits = fields[0].width
        for w in range(bits // 32):
            yield offset // 4 + w, f"{side}{path}" + (f"[{32 * w}+:32]" if bits > 32 else "")
        return
    text, at = [], 32
    for f in sorted(fields, key=lambda f: -f.high):
        if f.high + 1 < at:
            text.append(f"{at - f.high - 1}'d0")
        text.append(f"{f.width}'d0" if f.get_property("singlepulse") else f"{side}{path}_{f.inst_name}")
        at = f.low
    if at:
        text.append(f"{at}'d0")
    yield offset // 4, "{" + ", ".join(text) + "}"


def regs_sv(top):
    reads, writes, resets, pulses = [], [], [], []

    def add(reg, offset, path):
        for word, value in words(reg, offset, path):
            reads.append(f"        10'h{word:03x}: s_axil_rdata <= {value};\n")
        for f in reg.fields():
            if not f.is_sw_writable:
                continue
            name = path if is_plain(reg) else f"{path}_{f.inst_name}"
            pulse = f.get_property("singlepulse")
            (pulses if pulse else resets).append(name)
            bits = f"[{f.high}:{f.low}]" if f.width > 1 else f"[{f.low}]"
            value = f"(wdata{bits} & wmask{bits})" if pulse else f"(wdata{bits} & wmask{bits}) | (out.{name} & ~wmask{bits})"
            writes.append((offset // 4, f"next.{name} = {value};"))

    for node in top.children(unroll=True):
        base = node.absolute_address
        if isinstance(node, RegNode):
            index = f"[{node.current_idx[0]}]" if node.is_array else ""
            add(node, base, node.inst_name + index)
        else:
            for reg in node.children(unroll=True):
                add(reg, reg.absolute_address, f"{node.inst_name}[{node.current_idx[0]}].{reg.inst_name}")
    cases = ""
    for word in dict.fromkeys(w for w, _ in writes):
        lines = "".join(f"          {t}\n" for w, t in writes if w == word)
        cases += f"        10'h{word:03x}: begin\n{lines}        end\n"
    return f"""{SPDX}// {ORIGIN}
//
// AXI4-Lite slave of the register map. One access of each direction at a time; a write is
// taken when address and data are both there. Accesses to words that are no register, and
// writes to those that can only be read, are answered with SLVERR and change nothing.
module mw_regs
  import mw_regs_pkg::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [11:0] s_axil_awaddr,
    input  logic        s_axil_awvalid,
    output logic        s_axil_awready,
    input  logic [31:0] s_axil_wdata,
    input  logic [ 3:0] s_axil_wstrb,
    input  logic        s_axil_wvalid,
    output logic        s_axil_wready,
    output logic [ 1:0] s_axil_bresp,
    output logic        s_axil_bvalid,
    input  logic        s_axil_bready,
    input  logic [11:0] s_axil_araddr,
    input  logic        s_axil_arvalid,
    output logic        s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [ 1:0] s_axil_rresp,
    output logic        s_axil_rvalid,
    input  logic        s_axil_rready,
    input  in_t         in,
    output out_t        out
);
  localparam logic [1:0] Okay = 2'b00;
  localparam logic [1:0] SlvErr = 2'b10;

  logic write, read;
  assign write = s_axil_awvalid && s_axil_awready && s_axil_wvalid;
  assign read = s_axil_arvalid && s_axil_arready;
  assign s_axil_wready = s_axil_awready;

  logic [31:0] wdata, wmask;
  assign wdata = s_axil_wdata;
  assign wmask = {{{{8{{s_axil_wstrb[3]}}}}, {{8{{s_axil_wstrb[2]}}}}, {{8{{s_axil_wstrb[1]}}}}, {{8{{s_axil_wstrb[0]}}}}}};

  logic pulsed;  // a pulse was given in this cycle
  always_ff @(posedge clk) begin
    if (write || pulsed || rst) begin
      automatic out_t next = out;
{"".join(f"      next.{p} = '0;{chr(10)}" for p in pulses)}      if (write) begin
        s_axil_bresp <= Okay;
        case (s_axil_awaddr[11:2])
{cases}        default: s_axil_bresp <= SlvErr;
        endcase
      end
      if (rst) begin
{"".join(f"        next.{p} = '0;{chr(10)}" for p in pulses + resets)}      end
      out <= next;
      pulsed <= write && !rst;
    end
    s_axil_awready <= s_axil_awvalid && s_axil_wvalid && !s_axil_awready && (!s_axil_bvalid || s_axil_bready);
    if (write) s_axil_bvalid <= 1'b1;
    else if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (rst) begin
      s_axil_awready <= 1'b0;
      s_axil_bvalid  <= 1'b0;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      s_axil_arready <= 1'b0;
      s_axil_rvalid  <= 1'b0;
    end else begin
      s_axil_arready <= s_axil_arvalid && !s_axil_arready && (!s_axil_rvalid || s_axil_rready);
      if (read) s_axil_rvalid <= 1'b1;
      else if (s_axil_rready) s_axil_rvalid <= 1'b0;
    end
    if (read) begin
      s_axil_rresp <= Okay;
      case (s_axil_araddr[11:2])
{"".join(reads)}        default: begin
          s_axil_rdata <= '0;
          s_axil_rresp <= SlvErr;
        end
      endcase
    end
  end
endmodule
"""


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


def header(top):
    """Offsets of the registers outside of register files, and masks of their fields."""
    out = [f"{SPDX}// {ORIGIN}\n//\n// Offsets and fields of the card's registers in BAR 0.\n#pragma once\n\n"]
    for reg in top.children(unroll=False):
        if not isinstance(reg, RegNode):
            continue
        name = f"MW_{reg.inst_name.upper()}"
        out.append(f"#define {name} {reg.raw_address_offset:#x}u\n")
        for f in [] if is_plain(reg) else reg.fields():
            out.append(f"#define {name}_{f.inst_name.upper()} {((1 << f.width) - 1) << f.low:#x}u\n")
    return "".join(out)


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
    files = {"rtl/regs/mw_regs.sv": regs_sv(top), "rtl/regs/mw_regs_pkg.sv": regs_pkg(top)}
    files["rtl/regs/mw_map_pkg.sv"] = map_pkg()
    files["host-driver/src/regs.rs"] = rust(top)
    files["rtl/regs/mw_regs.h"] = header(top)
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
