# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# make demo   installs the pinned tools into .tools/venv, builds, and runs a plan
# make test   all checks and tests
# make prove  proves the core's modules; minutes of CPU time
# make synth  synthesizes the core's blocks; some three hours of CPU time
# make suite  tests all model NICs, and writes docs/suite.md with its figures
# make deter  draws the pictures of docs/deter.md
# make retrace  measures how far replays of recorded connections go, for docs/retrace.md
# make hosts  builds the kernel and the initramfs of Linux hosts in virtual time, from Debian's packages
# make agent  builds the program that sends RDMA traffic from hosts, with verbs
# make test-hosts  tests these
# make bench  measures and prints; slow figures never run in the tests
# make regs   regenerates what comes from the register map
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV := .tools/venv
PY := $(VENV)/bin/python
MIDWIRE := target/release/midwire
CARGO := cargo
CARGO_FLAGS := --release --locked

.PHONY: demo test deter retrace agent hosts test-hosts bench suite build tools regs lint prove synth test-rtl test-rust format clean need

demo: build
	$(MIDWIRE) run plans/tcp-retransmit.yaml

build: tools
	$(CARGO) build $(CARGO_FLAGS) --bin midwire

need:
	@for t in python3 g++ $(CARGO); do command -v $$t >/dev/null || { \
	  echo "midwire needs $$t; on Debian: apt install python3-venv g++, and Rust from https://rustup.rs" >&2; exit 1; }; done

tools: $(VENV)/requirements.txt
$(VENV)/requirements.txt: tools/requirements.txt | need
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r $<
	cp $< $@

$(VENV)/requirements-synth.txt: tools/requirements-synth.txt $(VENV)/requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r $<
	cp $< $@

regs: tools
	$(PY) tools/regs.py

lint: tools
	$(PY) tools/regs.py --check
	$(PY) tools/rtl_lint.py
	$(PY) tools/spdx.py
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings

test-rtl: tools
	$(PY) tools/rtl_test.py

prove: tools
	$(PY) tools/prove.py --write docs/proofs.md

synth: $(VENV)/requirements-synth.txt
	$(PY) tools/synth.py --write docs/synthesis.md

test-rust: tools
	$(CARGO) test $(CARGO_FLAGS) --workspace

test: lint test-rtl test-rust

deter: build hosts
	$(PY) -B tools/deter.py

retrace: build hosts
	$(PY) -B tools/retrace.py

hosts:
	python3 -B hosts/build.py

agent:
	CARGO=$(CARGO) python3 -B tools/agent.py

test-hosts: tools hosts agent
	CARGO=$(CARGO) python3 -B tools/agent.py lint
	$(CARGO) test $(CARGO_FLAGS) -p midwire-cli -- --ignored --test-threads 1

# Findings are what it is for.
suite: build
	$(MIDWIRE) suite rnic --all --write docs/suite.md --figures docs/figures || [ $$? = 1 ]

bench: build
	$(CARGO) run $(CARGO_FLAGS) -p midwire-hw-tests --bin bench

format: tools
	$(PY) tools/rtl_lint.py --format
	$(CARGO) fmt --all

clean:
	rm -rf target .tools runs
