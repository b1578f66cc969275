// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Against a bytewise CRC-32C, and the check values of RFC 3720 appendix B.4.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_block.h"
#include "verilated.h"

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    auto edge = [&] { t.clk = 1; t.eval(); t.clk = 0; t.eval(); };
    t.clk = 0, t.valid = 0, t.eval();
    auto sum = [&](const std::vector<uint8_t> &bytes, size_t units, bool cut) {
        for (size_t u = 0; u < units; u++) {
            t.valid = 1, t.first = u == 0, t.cut = cut && u + 1 == units;
            // a cut one is moved to the end
            for (int w = 0; w < 8; w++) t.data[w] = !t.cut ? load32(&bytes[u * 32 + w * 4]) : w ? load32(&bytes[u * 32 + w * 4 - 4]) : 0;
            edge();
            t.valid = 0;
            t.data[0] = 0x55555555;
            edge();
        }
        edge();
        return t.crc;
    };
    const std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);
    std::vector<uint8_t> up(32);
    for (int i = 0; i < 32; i++) up[i] = i;
    if (sum(zeros, 1, false) != 0x8a9136aa) return printf("RFC 3720: zeros\n"), 1;
    if (sum(ones, 1, false) != 0x62a8ab43) return printf("RFC 3720: ones\n"), 1;
    if (sum(up, 1, false) != 0x46dd794e) return printf("RFC 3720: incrementing\n"), 1;
    std::mt19937 rng{1};
    for (int i = 0; i < 500; i++) {
        const size_t units = 1 + rng() % 40;
        const bool cut = rng() % 2;
        std::vector<uint8_t> bytes(units * 32);
        for (auto &b : bytes) b = rng();
        const uint32_t want = crc32c(bytes.data(), bytes.size() - (cut ? 4 : 0));
        if (sum(bytes, units, cut) != want) return printf("%zu units, cut %d\n", units, cut), 1;
    }
    return 0;
}
