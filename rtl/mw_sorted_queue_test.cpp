// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random entries in and out, both in one cycle too, against a stable sort; few different keys,
// so that ties are common.
//
// verilate: -GKEY_W=4 -GVALUE_W=16 -GDEPTH_LOG2=3
// verilate: -GKEY_W=20 -GVALUE_W=16 -GDEPTH_LOG2=1
#include <cstdio>
#include <map>
#include <random>

#include "Vtop.h"
#include "verilated.h"

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{7};
    std::multimap<uint32_t, uint32_t> model;  // keeps the order of arrival of equal keys
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0;
    t.rst = 1;
    t.in_valid = t.out_ready = 0;
    edge();
    t.rst = 0;
    size_t most = 0, both = 0;
    const size_t depth = 1u << (sizeof t.in_key == 1 ? 3 : 1);
    for (int i = 0; i < 300000; i++) {
        unsigned bias = (i / 500) % 5;
        t.out_ready = rng() % 5 >= bias;
        t.in_valid = rng() % 4 <= bias && (model.size() < depth || (t.out_ready && !model.empty()));
        t.in_key = rng() % 16;
        t.in_value = rng();
        t.eval();
        if (t.out_valid != !model.empty()) return printf("out_valid is %d with %zu entries\n", t.out_valid, model.size()), 1;
        if (t.out_valid && (t.out_key != model.begin()->first || t.out_value != model.begin()->second))
            return printf("entry %d: key %u value %u, not %u %u\n", i, t.out_key, t.out_value, model.begin()->first, model.begin()->second), 1;
        bool pop = t.out_valid && t.out_ready;
        uint32_t key = t.in_key, value = t.in_value;
        bool push = t.in_valid;
        edge();
        if (pop) model.erase(model.begin());
        if (push) model.emplace(key, value);
        both += push && pop;
        most = std::max(most, model.size());
    }
    if (most != depth || both < 1000) return printf("at most %zu entries, %zu times both: not exercised\n", most, both), 1;
    return 0;
}
