// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Look-ups that insert, and rows written by the host between them, against a model of the
// ways: keys that come back to back, rows that fill up, tags that take entries over. The
// rows of a key are those of docs/tables.md.
// uses: mw_ram
// verilate: -GKEY_W=52 -GVAL_W=12 -GTAG_W=4 -GROWS_LOG2=3 -GINSERT=1
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

static const unsigned KeyW = 52, RowsLog2 = 3, Answer = 5;
struct Entry {
    bool used = false;
    uint32_t value = 0;  // fixed, tag of 4 bits, 7 bits
    uint64_t key = 0;
    bool fixed() const { return value >> 11; }
    unsigned tag() const { return value >> 7 & 15; }
};
struct Look {
    unsigned cycle;
    bool host, write, tagged, allow;
    unsigned way, row, tag, value;
    Entry entry;  // of the host, or the key looked for
};

int main() {
    uint64_t vector = 0x3100000005;
    const unsigned rows[4] = {0x54ea, 0x00aa, 0x0470, 0x2dd6};
    for (unsigned w = 0; w < 4; w++)
        if (hash_row(&vector, KeyW, w, 15) != rows[w]) return printf("test vector of way %u\n", w), 1;

    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937_64 rng{9};
    Entry model[4][1 << RowsLog2];
    std::deque<Look> flight;
    unsigned hits = 0, inserted = 0, full = 0, replaced = 0, removed = 0;
    t.clk = 0, t.eval();
    t.rst = 1;
    auto edge = [&] { t.clk = 1, t.eval(), t.clk = 0, t.eval(); };
    edge();
    t.rst = 0;
    unsigned cycle = 0;
    bool host_waits = false;

    auto answer = [&](const Look& l) {
        if (l.host) {
            host_waits = false;
            if (!t.out_host) printf("no answer to the host\n"), exit(1);
            Entry& e = model[l.way][l.row];
            uint32_t w[3] = {t.out_row[0], t.out_row[1], t.out_row[2]};
            Bits b(w);
            Entry got;
            b.field(false, KeyW, got.key), b.field(false, 12, got.value), b.field(false, 1, got.used);
            if (got.used != e.used || (e.used && (got.key != e.key || got.value != e.value))) printf("host reads a wrong row\n"), exit(1);
            if (l.write) e = l.entry;
            return;
        }
        const uint64_t key = l.entry.key;
        Entry* ways[4];
        for (unsigned w = 0; w < 4; w++) ways[w] = &model[w][hash_row(&key, KeyW, w, RowsLog2)];
        Entry *found = nullptr, *free = nullptr;
        for (int w = 3; w >= 0; w--) {
            if (ways[w]->used && ways[w]->key == key) found = ways[w];
            if (!ways[w]->used) free = ways[w];
        }
        bool hit = found, ins = false, none = false;
        uint32_t value = found ? found->value : 0;
        if (found && l.tagged && !found->fixed() && found->tag() != l.tag) {
            hit = false, ins = l.allow, replaced += ins, removed += !ins;
            found->used = l.allow, found->value = value = l.value;
        } else if (!found && l.allow) {
            ins = free, none = !free;
            if (free) *free = {true, l.value, key}, value = l.value;
        }
        hits += hit, inserted += ins, full += none;
        bool ok = t.out_valid && t.out_hit == hit && t.out_inserted == ins && t.out_full == none && t.out_key == key;
        if (hit || ins) ok = ok && t.out_value == value;
        if (!ok) printf("cycle %u key %lx: hit %d not %d, inserted %d not %d, full %d not %d, value %x not %x\n", cycle, key, t.out_hit, hit, t.out_inserted, ins, t.out_full, none, t.out_value, value), exit(1);
    };
    for (; cycle < 300000; cycle++) {
        unsigned keys = cycle / 1000 % 3 == 0 ? 3 : cycle / 1000 % 3 == 1 ? 60 : 12;
        t.in_valid = cycle < 299990 && rng() % 4 <= cycle / 500 % 4;
        t.in_host = t.in_valid && !host_waits && rng() % 3 == 0;
        if (t.in_valid) {
            uint64_t key = (rng() % keys + 1) * 0x9e3779b97f4a7 & 0xfffffffffffff;
            Look l{cycle, bool(t.in_host), bool(rng() % 4), bool(rng() % 4 == 0), bool(rng() % 3), unsigned(rng() % 4), 0, unsigned(rng() % 3), 0, {}};
            l.entry.key = key;
            if (l.host) {  // a row of the key, empty more often than not; sometimes another
                l.row = rng() % 8 ? hash_row(&key, KeyW, l.way, RowsLog2) : rng() % (1 << RowsLog2);
                l.entry.used = rng() % 4 == 0, l.entry.value = rng() % 4096;
                t.host_write = l.write, t.host_index = l.way << RowsLog2 | l.row;
                uint32_t w[3] = {};
                Bits b(w);
                b.put(KeyW, key), b.put(12, l.entry.value), b.put(1, l.entry.used);
                for (int i = 0; i < 3; i++) t.host_row[i] = w[i];
                host_waits = true;
            } else {
                l.value = l.tag << 7 | rng() % 128 | (rng() % 8 == 0) << 11;
                t.in_key = key, t.in_tagged = l.tagged, t.in_tag = l.tag;
            }
            flight.push_back(l);
        }
        t.ins_allow = rng(), t.ins_value = rng() & 4095;
        for (auto& l : flight)
            if (l.cycle + Answer - 1 == cycle) t.ins_allow = l.allow, t.ins_value = l.value;
        bool due = !flight.empty() && flight.front().cycle + Answer == cycle;
        if ((t.out_valid || t.out_host) != due) return printf("answer at the wrong time\n"), 1;
        if (due) answer(flight.front()), flight.pop_front();
        edge();
    }
    if (hits < 10000 || inserted < 10000 || full < 1000 || replaced < 1000 || removed < 1000)
        return printf("hits %u inserted %u full %u replaced %u removed %u: not exercised\n", hits, inserted, full, replaced, removed), 1;
    return 0;
}
