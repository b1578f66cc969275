// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random increments, clears and latches against an array of numbers.
// verilate: -GN=5
// verilate: -GN=1
#include <cstdio>
#include <random>

#include "Vtop.h"
#include "verilated.h"

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{1};
    const unsigned n = sizeof(t.count) / 8;
    uint64_t count[5] = {}, held[5] = {};
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0, t.rst = 1;
    t.eval();
    edge();
    t.rst = 0;
    for (int step = 0; step < 300000; step++) {
        t.latch = rng() % 50 == 0;
        t.clear = rng() % 5000 == 0;
        t.clear_mask = rng() & ((1u << n) - 1);
        t.any = 0;
        for (unsigned i = 0; i < n; i++) {
            const uint16_t inc = rng() % 3 ? 0 : rng() % 4 ? rng() : 0xffff;
            t.inc[i] = inc;
            t.any |= inc != 0;
            if (t.latch) held[i] = count[i];
            if (t.clear && t.clear_mask >> i & 1) count[i] = 0;
            count[i] += inc;
        }
        edge();
        for (unsigned i = 0; i < n; i++) {
            if (t.count[i] != count[i]) return printf("counter %u, step %d\n", i, step), 1;
            if (t.held[i] != held[i]) return printf("held %u, step %d\n", i, step), 1;
        }
    }
    return 0;
}
