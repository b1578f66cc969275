#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records connections, replays them from their packets alone, and writes how far that goes into
docs/retrace.md. What is recorded in real time is another recording each time."""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import pages

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIDWIRE = ROOT / "target/release/midwire"

LINUX = "{{linux: {{address: 10.77.0.{}/24, rate_mbps: 1000, delay: 5us}}}}"
LINUX6 = LINUX.replace("10.77.0.{}/24", "'fd00::{}/64'")
ECN = LINUX.replace("5us", "5us, sysctls: {{net.ipv4.tcp_ecn: 1}}")
TAP = "{{tap: {{address: 10.77.0.{}/24}}}}"
TRANSFER = "traffic: [{tcp: {from: a, to: b, bytes: 300kB}}]\n"
NETWORK = TRANSFER + """events:
  - {direction: a-to-b, packet: 60, action: drop}
  - {direction: a-to-b, packet: 30, action: {delay: 500us}}
  - {direction: b-to-a, kind: ack, packet: 20, action: {delay: 100us}}
"""
MARK = NETWORK + "  - {direction: a-to-b, packet: 100, action: ecn}\n"
REQUESTS = """traffic:
  - command:
      on: b
      run: |
        echo 'user root; events {} http { server { listen 80; root /host; } }' >nginx.conf
        head -c 100000 /dev/zero >data
        nginx -c /host/nginx.conf -e stderr
  - command: {on: a, run: curl -s -o /dev/null http://10.77.0.2/data -o /dev/null http://10.77.0.2/data}
events:
  - {direction: b-to-a, packet: 30, action: drop}
"""
IPERF3 = """traffic:
  - command: {on: b, run: iperf3 -s -1, background: true}
  - command: {on: a, run: iperf3 -c 10.77.0.2 -n 1M}
events:
  - {connection: 1, direction: a-to-b, packet: 300, iterations: 1-2, action: drop}
"""
BURST = TRANSFER + """events:
  - {direction: a-to-b, packet: 120-150, action: drop}
  - {direction: a-to-b, packet: 60, iterations: 1-2, action: drop}
  - {direction: a-to-b, packet: 30, action: {delay: 150us}}
  - {direction: b-to-a, kind: ack, packet: 40, action: drop}
"""
RANDOM = TRANSFER + """events:
  - {direction: a-to-b, kind: any, packet: all, probability: 3%, action: drop}
  - {direction: b-to-a, kind: any, packet: all, probability: 3%, action: drop}
  - {direction: a-to-b, packet: all, probability: 3%, action: {delay: 200us}}
"""
SILENCE = TRANSFER + """events:
  - {direction: b-to-a, kind: ack, packet: 8-30, action: drop}
"""
LOSS = """traffic: [{tcp: {from: a, to: b, bytes: 100kB}}]
events:
  - {direction: a-to-b, packet: 40, action: drop}
"""


def plan(host, body):
    """The text of a plan with two hosts of a kind."""
    return f"version: 1\nname: recorded\nendpoints:\n  a: {host.format(1)}\n  b: {host.format(2)}\n{body}"


# What is recorded, by which plan, and how it is replayed; or at which side of the card it is recorded alone.
CASES = [
    ("built-in TCP, 300 kB", plan(LINUX, TRANSFER), []),
    ("the same with a loss and two delays", plan(LINUX, NETWORK), []),
    ("and with ECN and a mark", plan(ECN, MARK), []),
    ("two requests of curl to nginx, with a loss", plan(LINUX, REQUESTS), []),
    ("iperf3, control connection", plan(LINUX, IPERF3), ["--connection", "0"]),
    ("iperf3, 1 MB, a segment lost twice", plan(LINUX, IPERF3), ["--connection", "1"]),
    ("a receiver that reads every 100 ms (`plans/deter/zero-window.yaml`)",
     (ROOT / "plans/deter/zero-window.yaml").read_text(), []),
    ("the same with `--calls`", (ROOT / "plans/deter/zero-window.yaml").read_text(), ["--calls", "run/inside.csv"]),
    ("recorded behind the losses: a burst, a segment lost twice, a delay, an ACK", plan(LINUX, BURST), ["behind"]),
    ("the same over IPv6, without identifications", plan(LINUX6, BURST), ["behind"]),
    ("recorded behind random losses and delays of both directions", plan(LINUX, RANDOM), ["behind"]),
    ("recorded in front of 23 ACKs that were lost in a row", plan(LINUX, SILENCE), ["before"]),
    ("in real time: built-in TCP between namespaces, a loss", plan(TAP, LOSS), []),
]


def midwire(work, *arguments):
    """What it says."""
    done = subprocess.run([MIDWIRE, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


# From a frame's first bit in to its first bit out of the card, ns.
LATENCY = 140


def options(body, at):
    """Options of a pcapng block."""
    found = {}
    while at + 4 <= len(body):
        code, length = struct.unpack_from("<HH", body, at)
        found[code] = body[at + 4:at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return found


def at_one_place(exported, side):
    """Packets of an exported run as they came to the card, or as they went on, in a pcap file."""
    names, packets, at = [], [], 0
    while at < len(exported):
        kind, length = struct.unpack_from("<II", exported, at)
        body = exported[at + 8:at + length - 4]
        at += length
        if kind == 1:
            names.append(options(body, 8)[2])
        if kind != 6:
            continue
        interface, high, low, captured, whole = struct.unpack_from("<IIIII", body)
        frame, time = body[20:20 + captured], high << 32 | low
        touched = options(body, 20 + (captured + 3) // 4 * 4).get(1, b"").startswith(b"event")
        egress = names[interface].endswith(b"egress")
        if egress == (side == "behind") or not touched and not egress:
            packets.append((time - LATENCY * egress, frame, whole))
    head = struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), whole) + frame
                           for time, frame, whole in sorted(packets))


def row(what, text, arguments):
    """A row of the table."""
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / "plan.yaml").write_text(text)
        told = midwire(work, "run", "plan.yaml", "--out", "run")
        told += midwire(work, "export", "run", "--pcapng", "run.pcapng")
        if arguments in (["before"], ["behind"]):
            file = pathlib.Path(work) / "run.pcapng"
            file.write_bytes(at_one_place(file.read_bytes(), arguments[0]))
            arguments = []
        told += midwire(work, "retrace", "run.pcapng", *arguments)
    recorded, same, timely = [re.search(rf"^{line} +(\d+)", told, re.M) for line in ("Packets", "Content", "Times")]
    if not recorded or not same or not timely:
        sys.exit(f"retrace: {what}:\n{told}")
    most = int(recorded[1])
    share = [f"{found[1]} ({100 * int(found[1]) / most:.4g} %)" for found in (same, timely)]
    departs = re.search(r"^Departs +(.*) after the first packet", told, re.M)
    print(f"{what}: {share[0]} the same", flush=True)
    return f"| {what} | {most} | {share[0]} | {share[1]} | {departs[1] if departs else 'never'} |\n"


def main():
    """Measures, and writes."""
    table = ("| recorded | packets | the same in what they say | and within 20 ns | departs after |\n|---|--:|--:|--:|--:|\n"
             + "".join(row(*case) for case in CASES))
    pages.write("retrace.md", "retrace", table)


if __name__ == "__main__":
    main()
