#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Records connections, replays them from their packets alone, and writes how far that goes into
docs/retrace.md. What is recorded in real time is another recording each time."""
import pathlib
import re
import subprocess
import sys
import tempfile

import pages

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIDWIRE = ROOT / "target/release/midwire"

LINUX = "{{linux: {{address: 10.77.0.{}/24, rate_mbps: 1000, delay: 5us}}}}"
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
LOSS = """traffic: [{tcp: {from: a, to: b, bytes: 100kB}}]
events:
  - {direction: a-to-b, packet: 40, action: drop}
"""


def plan(host, body):
    """The text of a plan with two hosts of a kind."""
    return f"version: 1\nname: recorded\nendpoints:\n  a: {host.format(1)}\n  b: {host.format(2)}\n{body}"


# What is recorded, by which plan, and how it is replayed.
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
    ("in real time: built-in TCP between namespaces, a loss", plan(TAP, LOSS), []),
]


def midwire(work, *arguments):
    """What it says."""
    done = subprocess.run([MIDWIRE, *arguments], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def row(what, text, arguments):
    """A row of the table."""
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / "plan.yaml").write_text(text)
        told = midwire(work, "run", "plan.yaml", "--out", "run")
        told += midwire(work, "export", "run", "--pcapng", "run.pcapng")
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
