// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random messages and random changes of them: the CRC of the changed message, computed bit by
// bit from the polynomial of IEEE 802.3, is that of the first one XOR what comes out.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

static uint32_t crc32(const std::vector<uint8_t>& message) {
    uint32_t crc = ~0u;
    for (uint8_t byte : message)
        for (int bit = 0; bit < 8; bit++) {
            bool one = (crc ^ byte >> bit) & 1;
            crc = crc >> 1 ^ (one ? 0xedb88320 : 0);
        }
    return ~crc;
}

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{1};
    const uint8_t check[] = "123456789";
    if (crc32({check, check + 9}) != 0xcbf43926) return printf("the bench's CRC is wrong\n"), 1;

    t.clk = 0, t.in_valid = 0, t.rst = 1;
    auto edge = [&] { t.eval(), t.clk = 1, t.eval(), t.clk = 0, t.eval(); };
    for (int i = 0; i < 4; i++) edge();
    t.rst = 0;

    std::deque<uint32_t> want;
    unsigned answers = 0, waited = 0;
    auto answer = [&] {
        edge();
        if (!t.out_valid) return;
        if (want.empty()) printf("an answer to nothing\n"), exit(1);
        if (t.out_change != want.front()) printf("answer %u: %08x, not %08x\n", answers, t.out_change, want.front()), exit(1);
        want.pop_front(), answers++;
    };
    for (int n = 0; n < 4000; n++) {
        std::vector<uint8_t> message(n % 16 ? 1 + rng() % 300 : 10000 + rng() % 240), changed;
        for (auto& byte : message) byte = rng();
        changed = message;
        unsigned parts = 1 + rng() % 4;
        for (unsigned part = 0; part < parts; part++) {
            unsigned at = rng() % 8 ? rng() % message.size() : message.size() - 1;
            uint8_t change[16] = {};
            for (unsigned i = 0; i < 16 && at + i < message.size(); i++)
                if (rng() % 3 == 0) change[i] = rng();
            for (unsigned i = 0; i < 16 && at + i < message.size(); i++) changed[at + i] ^= change[i];
            memcpy(&t.in_change, change, 16);
            t.in_bytes = message.size() - at;
            t.in_last = part + 1 == parts;
            if (t.in_last) want.push_back(crc32(message) ^ crc32(changed));
            t.in_valid = 1;
            answer();
            t.in_valid = 0;
            if (rng() % 4 == 0) answer();
        }
    }
    for (; !want.empty() && waited < 100; waited++) answer();
    if (!want.empty()) return printf("%zu answers are missing\n", want.size()), 1;
    return 0;
}
