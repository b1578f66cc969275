// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Captures of random entries into a ring in a model of host memory behind an AXI4 slave with
// random latency. Every announced block is read back by docs/formats.md; the slave checks
// the rules of AXI4 and that a header follows its units.
// uses: mw_fifo mw_crc32c
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_block.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;

#define CHECK(cond, ...)                                                            \
    do {                                                                            \
        if (!(cond)) {                                                              \
            printf("%s:%d: cycle %llu: %s: ", __FILE__, __LINE__, (unsigned long long)cycle, #cond); \
            printf(__VA_ARGS__);                                                    \
            printf("\n");                                                           \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

struct Entry {
    Bytes units;
    uint64_t time;
};

struct Config {
    const char *name = "";
    unsigned block_log2 = 12, ring_log2 = 2, snapshot = 0;
    uint64_t base = 0x1234567000000;
    uint32_t flush_ns = 1000000;
    unsigned in_gap = 0;          // idle cycles before an entry, at most
    unsigned unit_gap = 0;        // one unit in so many is late; 0: none
    unsigned slave_stall = 0;     // the slave's ready is low once in so many; 0: never
    unsigned latency = 1;         // of responses, at most
    unsigned host_delay = 0;      // cycles until the host takes a block, at most
    unsigned jump = 0;            // one record in so many lies far away in time
    unsigned ns = 3;              // per cycle
    int error_burst = -1;         // answered with an error
};

struct Bench {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng;
    uint64_t cycle = 0, time = 1'000'000'000'000;
    Config c;

    // host memory and ring
    Bytes ring;
    std::vector<bool> host_owns;  // announced and not yet taken
    std::deque<std::pair<uint64_t, uint32_t>> to_take;
    uint64_t produced = 0;

    // source
    std::deque<Entry> sent;  // offered, not yet seen in a block
    Bytes current;
    size_t offset = 0;
    uint64_t current_time = 0, entries = 0, wait = 0, accepted_units = 0, last_accept = 0;

    // AXI slave
    struct Burst {
        uint64_t addr, at;
        unsigned beats, done = 0, number;
        bool header;
    };
    std::deque<Burst> data_due, response_due;
    std::map<uint64_t, unsigned> unanswered;  // bursts of units by block in the ring
    unsigned bursts = 0;
    bool aw_held = false, w_held = false;
    uint64_t aw_addr = 0;
    unsigned aw_len = 0;
    uint32_t w_data[8] = {};
    bool w_last = false;
    uint64_t header_b_block = ~0ull;

    // reading
    uint64_t next_seq = 0, previous_units = 0, units_read = 0, blocks_full = 0, blocks_flushed = 0, blocks_far = 0;
    bool final_seen = false, previous_flushed = false;
    uint64_t previous_time = 0;
    uint64_t ring_full_cycles = 0;

    explicit Bench(unsigned seed) : rng(seed) {
        t.clk = 0, t.rst = 1, t.capture = 0, t.in_valid = 0, t.m_axi_bvalid = 0, t.m_axi_bresp = 0;
        t.m_axi_awready = 0, t.m_axi_wready = 0, t.inflight_captured = 0, t.sources_busy = 0, t.ring_consumed = 0;
        t.ring_base = 0, t.ring_blocks_log2 = 0, t.block_log2 = 12, t.snapshot_bytes = 0, t.flush_ns = 0;
        t.eval();
        edge();
        edge();
        t.rst = 0;
    }

    void edge() { t.clk = 1, t.eval(), t.clk = 0, t.eval(); }
    bool chance(unsigned n) { return n && rng() % n == 0; }
    unsigned below(unsigned n) { return n ? rng() % n : 0; }

    // Counters are functions of the cycle, so that a header tells when it was taken.
    static uint64_t counter(unsigned i, uint64_t cycle) { return cycle * (2 * i + 1) + i * 1000; }

    uint64_t block_bytes() const { return 1ull << c.block_log2; }

    void make_entry() {
        Bytes record(32);
        for (auto &b : record) b = rng();
        const unsigned lengths[] = {60, 64, 96, 1514, 10240, 1 + unsigned(rng() % 300), unsigned(rng() % 2000)};
        const uint16_t length = lengths[rng() % 7];
        memcpy(&record[6], &length, 2);
        const uint32_t id = entries;
        memcpy(&record[8], &id, 4);
        const bool snapshot = c.snapshot && length && !chance(8);
        record[5] = (record[5] & ~FLAG_SNAPSHOT) | (snapshot ? FLAG_SNAPSHOT : 0);
        current_time = time - rng() % 5000;
        if (chance(c.jump)) current_time += (rng() % 2 ? 1 : -1) * int64_t((1ull << 30) + rng() % (1ull << 33));
        const uint32_t low = current_time;
        memcpy(&record[0], &low, 4);
        const unsigned units = entry_units(record.data(), c.snapshot);
        record.resize(units * 32);
        for (size_t i = 32; i < record.size(); i++) record[i] = rng();
        current = record, offset = 0;
        entries++;
        wait = below(c.in_gap + 1);
    }

    // One clock. `offer`: the source has entries to give.
    void tick(bool offer) {
        // inputs
        if (current.empty() && offer) make_entry();
        if (!t.in_valid && !current.empty()) {
            if (wait) wait--;
            else if (!(offset && chance(c.unit_gap))) {
                t.in_valid = 1;
                t.in_first = offset == 0;
                t.in_last = offset + 32 == current.size();
                t.in_time_hi = offset == 0 ? current_time >> 32 : rng();
                for (int w = 0; w < 8; w++) t.in_data[w] = load32(&current[offset + w * 4]);
            }
        }
        t.time_ns = time;
        for (unsigned i = 0; i < 4; i++) {
            t.counters[2 * i] = counter(i, cycle), t.counters[2 * i + 1] = counter(i, cycle) >> 32;
        }
        for (unsigned i = 4; i < 18; i++) t.counters[4 + i] = counter(i, cycle);
        t.m_axi_awready = !chance(c.slave_stall);
        t.m_axi_wready = !chance(c.slave_stall);
        t.m_axi_bvalid = 0, t.m_axi_bresp = rng();
        if (!response_due.empty() && response_due.front().at <= cycle) {
            t.m_axi_bvalid = 1;
            t.m_axi_bresp = response_due.front().number == unsigned(c.error_burst) ? 2 + rng() % 2 : rng() % 2;
        }
        while (!to_take.empty() && to_take.front().first <= cycle) {
            t.ring_consumed = to_take.front().second;
            const size_t slot = (t.ring_consumed - 1) % host_owns.size();
            host_owns[slot] = false;
            std::fill_n(ring.begin() + slot * block_bytes(), block_bytes(), 0);
            to_take.pop_front();
        }
        t.eval();

        bus();
        const bool taken = t.in_valid && t.in_ready;
        if (t.in_valid && !t.in_ready && t.ring_produced - t.ring_consumed == host_owns.size()) ring_full_cycles++;
        edge();
        if (taken) {
            t.in_valid = 0;
            if (offset == 0) sent.push_back({current, current_time});
            offset += 32, accepted_units++, last_accept = cycle;
            if (offset == current.size()) current.clear();
        }
        CHECK(t.irq == (t.ring_produced != uint32_t(produced)), "irq without a block, or the reverse");
        if (t.irq) announced();
        cycle++;
        time += c.ns;
    }

    void bus() {
        // a write address
        if (aw_held) CHECK(t.m_axi_awvalid && t.m_axi_awaddr == aw_addr && t.m_axi_awlen == aw_len, "AW changed while it waited");
        aw_held = t.m_axi_awvalid && !t.m_axi_awready;
        aw_addr = t.m_axi_awaddr, aw_len = t.m_axi_awlen;
        // data, before the address of this cycle counts
        if (w_held) {
            CHECK(t.m_axi_wvalid && t.m_axi_wlast == w_last, "W changed while it waited");
            for (int w = 0; w < 8; w++) CHECK(t.m_axi_wdata[w] == w_data[w], "W data changed while it waited");
        }
        w_held = t.m_axi_wvalid && !t.m_axi_wready;
        w_last = t.m_axi_wlast;
        for (int w = 0; w < 8; w++) w_data[w] = t.m_axi_wdata[w];
        if (t.m_axi_wvalid && t.m_axi_wready) {
            CHECK(!data_due.empty(), "data without an address");
            Burst &b = data_due.front();
            CHECK(t.m_axi_wstrb == 0xffffffffu, "strobes");
            CHECK(t.m_axi_wlast == (b.done + 1 == b.beats), "beat %u of %u", b.done + 1, b.beats);
            memcpy(&ring[b.addr - c.base + b.done * 32], w_data, 32);
            if (++b.done == b.beats) {
                b.at = std::max(cycle + 1 + below(c.latency), response_due.empty() ? 0 : response_due.back().at + 1);
                response_due.push_back(b);
                data_due.pop_front();
            }
        }
        if (t.m_axi_bvalid) {
            CHECK(t.m_axi_bready, "bready must be high");
            const Burst b = response_due.front();
            response_due.pop_front();
            const uint64_t block = (b.addr - c.base) / block_bytes();
            if (b.header) header_b_block = block;
            else unanswered[block]--;
        }
        if (t.m_axi_awvalid) {
            CHECK(t.m_axi_awsize == 5 && t.m_axi_awburst == 1, "size %u, burst %u", t.m_axi_awsize, t.m_axi_awburst);
            CHECK(aw_len < 16 && aw_addr % 32 == 0, "%u beats at %llx", aw_len + 1, (unsigned long long)aw_addr);
            const uint64_t end = aw_addr + (aw_len + 1) * 32 - 1;
            CHECK(aw_addr >> 12 == end >> 12, "burst crosses 4 KiB");
            CHECK(aw_addr >= c.base && end < c.base + ring.size(), "outside the ring");
            const uint64_t block = (aw_addr - c.base) / block_bytes();
            CHECK(!host_owns[block], "writes into a block that the host has not given back");
            const bool header = aw_addr % block_bytes() == 0;
            if (header) {
                CHECK(aw_len == 4, "header of %u beats", aw_len + 1);
                CHECK(unanswered[block] == 0, "header before the responses to its units");
            }
            if (t.m_axi_awready) {
                data_due.push_back({aw_addr, 0, aw_len + 1, 0, bursts++, header});
                if (!header) unanswered[block]++;
            }
        }
    }

    void announced() {
        const uint64_t number = produced++;
        const uint64_t slot = number % host_owns.size();
        CHECK(header_b_block == slot, "block %llu announced before the response to its header", (unsigned long long)number);
        host_owns[slot] = true;
        to_take.push_back({std::max(cycle + 1 + below(c.host_delay), to_take.empty() ? 0 : to_take.back().first), uint32_t(produced)});
        const uint8_t *b = &ring[slot * block_bytes()];
        CHECK(!final_seen, "a block after the final one");
        CHECK(load32(b) == 0x3142574d && load16(b + 4) == 2, "magic or version");
        const unsigned flags = load16(b + 6);
        CHECK(flags < 4, "flags %x", flags);
        CHECK(load64(b + 8) == number, "number %llu", (unsigned long long)load64(b + 8));
        const uint64_t block_time = load64(b + 16), first_seq = load64(b + 24);
        const uint32_t records = load32(b + 32), used = load32(b + 36);
        CHECK(first_seq == next_seq, "first_seq");
        CHECK(load32(b + 40) == block_bytes() && load32(b + 44) == c.snapshot, "block_bytes or snapshot_bytes");
        CHECK(used >= 160 && used <= block_bytes() && used % 32 == 0, "used %u", used);
        const uint64_t closed = load64(b + 48);
        CHECK(closed <= cycle, "counters of the future");
        for (unsigned i = 0; i < 4; i++) CHECK(load64(b + 48 + i * 8) == counter(i, closed), "counter %u", i);
        for (unsigned i = 4; i < 18; i++) CHECK(load32(b + 80 + (i - 4) * 4) == uint32_t(counter(i, closed)), "counter %u", i);
        for (unsigned i = 136; i < 156; i++) CHECK(b[i] == 0, "reserved byte %u", i);
        CHECK(load32(b + 156) == crc32c(b, 156, crc32c(b + 160, used - 160)), "crc");
        for (size_t i = used; i < block_bytes(); i++) CHECK(b[i] == 0, "byte %zu beyond the used ones", i);

        uint64_t at = 160;
        for (uint32_t r = 0; r < records; r++) {
            CHECK(!sent.empty(), "a record that was not sent");
            const Entry &e = sent.front();
            CHECK(at + e.units.size() <= used, "an entry runs out of its block");
            CHECK(memcmp(b + at, e.units.data(), e.units.size()) == 0, "content of record %llu", (unsigned long long)(next_seq + r));
            const int64_t near = int32_t(load32(b + at) - uint32_t(block_time));
            CHECK(block_time + near == e.time, "time cannot be told");
            if (r == 0) {
                CHECK(e.time == block_time, "time of the first record");
                const bool full = previous_units + e.units.size() > block_bytes();
                const int64_t far = e.time - previous_time;
                const bool distant = far >= 1 << 30 || far < -(1 << 30);
                CHECK(number == 0 || full || distant || previous_flushed, "the block before was closed early");
                blocks_full += number && full, blocks_far += number && distant && !full;
            }
            at += e.units.size();
            units_read += e.units.size() / 32;
            sent.pop_front();
        }
        CHECK(at == used, "used_bytes");
        next_seq += records;
        if (records == 0) CHECK(flags & 1, "only the final block may be empty");
        final_seen = flags & 1;
        previous_flushed = flags & 2;
        blocks_flushed += previous_flushed;
        previous_units = used, previous_time = block_time;
    }

    void begin(const Config &config) {
        c = config;
        ring.assign(block_bytes() << c.ring_log2, 0);
        host_owns.assign(1u << c.ring_log2, false);
        sent.clear(), to_take.clear(), current.clear(), unanswered.clear();
        produced = next_seq = previous_units = units_read = entries = accepted_units = 0;
        blocks_full = blocks_flushed = blocks_far = ring_full_cycles = 0;
        final_seen = previous_flushed = false;
        bursts = 0, header_b_block = ~0ull;
        t.ring_consumed = 0, t.in_valid = 0;
        t.ring_base = c.base, t.ring_blocks_log2 = c.ring_log2, t.block_log2 = c.block_log2;
        t.snapshot_bytes = c.snapshot, t.flush_ns = c.flush_ns;
        t.capture = 1;
        produced = 0;
        // ring_produced goes to 0 with the start
        t.time_ns = time;
        t.eval();
        edge();
        cycle++;
        CHECK(t.capture_active && t.recording && t.ring_produced == 0 && !t.dma_error, "start");
        CHECK(t.capture_snapshot == c.snapshot, "snapshot in force %u", t.capture_snapshot);
        // The configuration of a running capture stands.
        t.ring_base = rng(), t.block_log2 = rng(), t.snapshot_bytes = rng(), t.flush_ns = rng(), t.ring_blocks_log2 = rng();
    }

    void end(unsigned late_entries) {
        t.capture = 0;
        t.inflight_captured = 1;
        const uint64_t upto = entries + late_entries;
        for (int i = 0; entries < upto || !current.empty(); i++) {
            tick(entries < upto);
            CHECK(i < 3000000, "units are not taken");
        }
        for (int i = 0; i < 40; i++) tick(false);
        CHECK(t.capture_active && !t.recording, "stopped with frames under way");
        t.inflight_captured = 0;
        t.sources_busy = 1;
        for (int i = 0; i < 40; i++) tick(false);
        CHECK(t.capture_active, "stopped with sources busy");
        t.sources_busy = 0;
        for (int i = 0; t.capture_active; i++) {
            tick(false);
            CHECK(i < 100000, "no end");
        }
        for (int i = 0; i < 20; i++) tick(false);
        CHECK(final_seen, "no final block");
        CHECK(sent.empty() && next_seq == entries, "%zu entries are missing", sent.size());
        CHECK(t.lost_records == 0 && !t.dma_error && !t.busy && !t.timer_valid, "rest");
        CHECK(data_due.empty() && response_due.empty(), "bursts under way");
    }

    void fail(const char *name) {
        for (int i = 0; !t.dma_error; i++) {
            tick(entries < 100000);
            CHECK(i < 1000000, "%s: no error", name);
        }
        CHECK(!t.recording, "records wanted after an error");
        for (int i = 0; i < 500; i++) tick(i < 300);
        for (int i = 0; t.capture_active || !current.empty(); i++) {
            tick(false);
            CHECK(i < 10000, "%s: capture does not end", name);
        }
        CHECK(next_seq + t.lost_records == entries, "%s: %llu read, %u lost, %llu sent", name, (unsigned long long)next_seq,
              t.lost_records, (unsigned long long)entries);
        const uint64_t at = produced;
        for (int i = 0; i < 100; i++) tick(false);
        CHECK(!t.capture_active && t.dma_error && produced == at, "%s: must rest until capture falls", name);
        t.capture = 0;
        tick(false), tick(false);
        CHECK(t.dma_error, "the error stands until the next start");
        CHECK(data_due.empty() && response_due.empty(), "bursts under way");
    }
};

int main() {
    Bench b{1};
    uint64_t &cycle = b.cycle;
    auto run = [&](const Config &c, unsigned n, unsigned late) {
        b.begin(c);
        for (uint64_t from = b.cycle; b.entries < n;) {
            b.tick(true);
            CHECK(b.cycle < from + 5000000, "%s: units are not taken", c.name);
        }
        b.end(late);
        printf("%-12s %llu blocks: %llu full, %llu flushed, %llu far in time; %llu cycles with the ring full\n", c.name,
               (unsigned long long)b.produced, (unsigned long long)b.blocks_full, (unsigned long long)b.blocks_flushed,
               (unsigned long long)b.blocks_far, (unsigned long long)b.ring_full_cycles);
    };

    Config empty;
    empty.name = "empty";
    run(empty, 0, 0);
    CHECK(b.produced == 1, "an empty capture is one block");

    // A unit a cycle, into blocks of 64 KiB, from a slave with 500 cycles of latency.
    Config fast;
    fast.name = "fast", fast.block_log2 = 16, fast.ring_log2 = 3, fast.latency = 1;
    b.begin(fast);
    while (b.entries < 20000) b.tick(true);
    const uint64_t c0 = b.cycle, u0 = b.accepted_units;
    while (b.entries < 60000) b.tick(true);
    const double rate = double(b.accepted_units - u0) / double(b.cycle - c0);
    printf("fast         %.4f units a cycle\n", rate);
    CHECK(rate > 0.99, "%.4f units a cycle", rate);
    b.end(3);
    CHECK(b.blocks_full > 20 && b.blocks_flushed == 0, "not exercised");

    Config mixed;
    mixed.name = "mixed", mixed.snapshot = 128, mixed.in_gap = 30, mixed.unit_gap = 5, mixed.slave_stall = 3;
    mixed.latency = 60, mixed.host_delay = 2000, mixed.jump = 200, mixed.flush_ns = 2000;
    run(mixed, 20000, 100);
    CHECK(b.blocks_full && b.blocks_flushed > 20 && b.blocks_far > 20, "not exercised");

    Config full;
    full.name = "full", full.snapshot = 3904, full.ring_log2 = 0, full.host_delay = 3000, full.latency = 20;
    full.base = 0xfff000;
    run(full, 3000, 50);
    CHECK(b.ring_full_cycles > 10000, "the ring was never full");

    Config large;
    large.name = "large", large.block_log2 = 15, large.snapshot = 10240, large.ring_log2 = 1, large.unit_gap = 50;
    large.base = 0x8000, large.host_delay = 500, large.latency = 300, large.slave_stall = 20;
    run(large, 2000, 5);

    // The flush timer, with idle clocks skipped as a simulator would.
    Config lazy;
    lazy.name = "lazy", lazy.flush_ns = 100000, lazy.ns = 1;
    b.begin(lazy);
    for (int n = 0; n < 20; n++) {
        const uint64_t blocks = b.produced, from = b.time;
        b.tick(true);
        for (int i = 0; i < 1000 && (b.t.busy || b.t.in_valid); i++) b.tick(false);
        CHECK(b.t.timer_valid && b.produced == blocks, "the block must wait for its timer");
        const uint64_t due = b.t.timer_ns;
        CHECK(due >= from + lazy.flush_ns && due <= from + lazy.flush_ns + 10, "due %lld after", (long long)(due - from));
        b.time = due - 1;
        b.tick(false);
        CHECK(!b.t.busy, "busy before its time");
        b.tick(false);
        CHECK(b.t.busy, "asleep at its time");
        for (int i = 0; b.produced == blocks; i++) {
            b.tick(false);
            CHECK(i < 100, "not flushed");
        }
        CHECK(b.previous_flushed, "no flush flag");
        for (int i = 0; i < 1000 && b.t.busy; i++) b.tick(false);
        CHECK(!b.t.busy && !b.t.timer_valid, "no rest after a flush");
    }
    b.end(0);
    CHECK(b.blocks_flushed == 20, "flushed %llu", (unsigned long long)b.blocks_flushed);

    // Errors: at units, at a header, early, late; then a sound capture again.
    for (int at : {0, 1, 8, 9, 17, 18, 100, 300}) {
        Config bad = mixed;
        bad.name = "bad", bad.error_burst = at, bad.jump = 0, bad.in_gap = at % 2 ? 3 : 0;
        b.begin(bad);
        b.fail("bad");
        run(empty, 0, 0);
        run(mixed, 200, 3);
    }

    // Random configurations.
    for (int i = 0; i < 25; i++) {
        Config r;
        r.name = "random", r.block_log2 = 12 + b.below(4), r.ring_log2 = b.below(4);
        r.snapshot = std::min<unsigned>(b.below(4) * 32 * (1 + b.below(60)), (1u << r.block_log2) - 192);
        r.base = uint64_t(b.rng()) << 16, r.flush_ns = 1000 + b.below(20000), r.in_gap = b.below(3) * b.below(100);
        r.unit_gap = b.below(2) * (2 + b.below(5)), r.slave_stall = b.below(2) * (2 + b.below(5)), r.latency = 1 + b.below(400);
        r.host_delay = b.below(2) * b.below(5000), r.jump = b.below(2) * 100, r.ns = 1 + b.below(10);
        run(r, 1500, b.below(20));
    }

    // A snapshot length that no block of 4 KiB can take is limited to what fits.
    Config big;
    big.name = "big";
    b.c = big;
    b.t.snapshot_bytes = 10240, b.t.block_log2 = 12, b.t.capture = 1;
    b.edge();
    CHECK(b.t.capture_snapshot == 4096 - 192, "snapshot in force %u", b.t.capture_snapshot);
    return 0;
}
