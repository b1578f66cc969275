// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random pushes and pops against a deque: order, content, `free`, and no word lost when full.
// verilate: -GWIDTH=32 -GDEPTH_LOG2=4
// verilate: -GWIDTH=32 -GDEPTH_LOG2=1
// verilate: -GWIDTH=32 -GDEPTH_LOG2=3 -GREAD=2
#include <cstdio>
#include <deque>
#include <random>

#include "Vtop.h"
#include "verilated.h"

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{1};
    std::deque<uint32_t> model;
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0;
    t.eval();
    t.rst = 1;
    edge();
    t.rst = 0;
    t.eval();
    const unsigned depth = t.free;
    unsigned popped = 0, full = 0;
    for (int i = 0; i < 200000; i++) {
        unsigned bias = (i / 1000) % 4;
        t.in_valid = rng() % 4 <= bias;
        t.in_data = rng();
        t.out_ready = rng() % 4 >= bias;
        t.eval();
        if (t.free != depth - model.size()) return printf("free is %u with %zu words\n", t.free, model.size()), 1;
        if (t.in_ready != (model.size() < depth)) return printf("in_ready wrong\n"), 1;
        if (t.out_valid && (model.empty() || t.out_data != model.front())) return printf("wrong word\n"), 1;
        bool push = t.in_valid && t.in_ready, pop = t.out_valid && t.out_ready;
        full += t.in_valid && !t.in_ready;
        edge();
        if (pop) model.pop_front(), popped++;
        if (push) model.push_back(t.in_data);
    }
    if (popped < 10000 || full < 100) return printf("popped %u, full %u: not exercised\n", popped, full), 1;
    return 0;
}
