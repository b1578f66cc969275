// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Entries of random length from four sources: each comes out whole, in its source's order,
// a unit a cycle while anything waits, and no source waits for more than one turn of each other.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>

#include "Vtop.h"
#include "verilated.h"

struct Unit {
    uint32_t data[8], time_hi;
    bool first, last;
};

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{1};
    std::deque<Unit> source[4], model[4];
    bool offered[4] = {};
    unsigned waited[4] = {}, count[4] = {}, entries = 0, idle = 0;
    int owner = -1;
    bool held = false;
    uint32_t held_word = 0;
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0, t.rst = 1, t.in_valid = 0, t.out_ready = 0;
    t.eval();
    edge();
    t.rst = 0;
    for (int cycle = 0; cycle < 400000; cycle++) {
        const int mode = cycle / 20000 % 4;  // 0: all full and a free reader, 1: gaps, 2: slow reader, 3: both
        for (unsigned s = 0; s < 4; s++) {
            if (source[s].empty() && (mode != 1 || rng() % 20 == 0)) {
                const unsigned n = rng() % 3 ? 1 : 1 + rng() % 12;
                for (unsigned i = 0; i < n; i++) {
                    Unit u;
                    for (auto &w : u.data) w = rng();
                    u.data[0] = s, u.time_hi = rng(), u.first = i == 0, u.last = i + 1 == n;
                    source[s].push_back(u), model[s].push_back(u);
                }
            }
            if (!offered[s]) offered[s] = !source[s].empty() && (mode == 0 || mode == 2 || rng() % 3);
            if (offered[s]) {
                const Unit &u = source[s].front();
                for (int w = 0; w < 8; w++) t.in_data[s * 8 + w] = u.data[w];
                t.in_time_hi[s] = u.time_hi;
                t.in_first = (t.in_first & ~(1u << s)) | u.first << s;
                t.in_last = (t.in_last & ~(1u << s)) | u.last << s;
            }
            t.in_valid = (t.in_valid & ~(1u << s)) | offered[s] << s;
        }
        t.out_ready = mode < 2 || rng() % 3 == 0;
        t.eval();
        if (t.in_ready & ~t.in_valid) return printf("ready without valid\n"), 1;
        if (!t.busy && (t.in_ready || (t.out_valid && t.out_ready))) return printf("moves and is not busy\n"), 1;
        if (held && (!t.out_valid || t.out_data[7] != held_word)) return printf("changed while it waited\n"), 1;
        held = t.out_valid && !t.out_ready, held_word = t.out_data[7];
        if (mode == 0 && cycle % 20000 > 10) idle += !t.out_valid;
        if (t.out_valid && t.out_ready) {
            const unsigned s = t.out_data[0];
            if (s > 3 || model[s].empty()) return printf("a unit of nobody\n"), 1;
            const Unit u = model[s].front();
            model[s].pop_front();
            for (int w = 0; w < 8; w++) if (t.out_data[w] != u.data[w]) return printf("wrong unit\n"), 1;
            if (t.out_first != u.first || t.out_last != u.last || t.out_time_hi != u.time_hi) return printf("wrong marks\n"), 1;
            if (owner >= 0 && owner != int(s)) return printf("an entry was interrupted\n"), 1;
            owner = u.last ? -1 : int(s);
            entries += u.last;
        }
        for (unsigned s = 0; s < 4; s++) {
            if (!(t.in_ready >> s & 1)) continue;
            if (source[s].front().first) {
                count[s]++, waited[s] = 0;
                for (unsigned o = 0; o < 4; o++)
                    if (o != s && offered[o] && ++waited[o] > 3) return printf("source %u is passed over\n", o), 1;
            }
            source[s].pop_front();
            offered[s] = false;
        }
        edge();
    }
    if (idle) return printf("%u idle cycles with units waiting\n", idle), 1;
    if (entries < 50000) return printf("only %u entries\n", entries), 1;
    return 0;
}
