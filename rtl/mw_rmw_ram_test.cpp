// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random updates of few rows, at every distance, against an array; then clear.
// uses: mw_ram
// verilate: -GWIDTH=40 -GROWS_LOG2=2
#include <cstdio>
#include <deque>
#include <random>

#include "Vtop.h"
#include "verilated.h"

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937_64 rng{5};
    uint64_t model[4] = {};
    struct Access { unsigned cycle, row; };
    std::deque<Access> flight;
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0;
    t.eval();
    t.rst = 1;
    edge();
    t.rst = 0;
    for (unsigned i = 0; i < 200000; i++) {
        t.in_valid = i < 199990 && rng() % 4 <= i / 1000 % 4;
        t.in_row = i / 500 % 2 ? rng() % 4 : i / 5000 % 4;
        if (t.in_valid) flight.push_back({i, t.in_row});
        bool due = !flight.empty() && flight.front().cycle + 3 == i;
        if (t.out_valid != due) return printf("answer at the wrong time\n"), 1;
        t.upd_valid = due && rng() % 3;
        t.upd_data = rng() & 0xffffffffff;
        if (due) {
            uint64_t& row = model[flight.front().row];
            if (t.out_data != row) return printf("cycle %u row %u: %lx not %lx\n", i, flight.front().row, t.out_data, row), 1;
            if (t.upd_valid) row = t.upd_data;
            flight.pop_front();
        }
        edge();
    }
    t.clear = 1;
    edge();
    t.clear = 0;
    if (!t.busy) return printf("clear is not busy\n"), 1;
    for (int i = 0; t.busy; i++, edge()) if (i > 10) return printf("clear does not end\n"), 1;
    for (unsigned row = 0; row < 4; row++) {
        t.in_valid = 1;
        t.in_row = row;
        edge();
        t.in_valid = 0;
        edge(), edge();
        if (!t.out_valid || t.out_data) return printf("row %u is not cleared\n", row), 1;
    }
    return 0;
}
