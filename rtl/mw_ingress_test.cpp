// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random frames, from one byte to giants, with bubbles, errors, refusals and capture switched
// on and off, against a list of what must come out and be counted.
//
// verilate: -GDATA_W=512
// verilate: -GDATA_W=64
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;
static constexpr size_t Width = sizeof(Vtop::s_axis_tdata), MaxFrame = 10240;

#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            printf("cycle %llu: ", (unsigned long long)cycle); \
            printf(__VA_ARGS__); \
            printf("\n"); \
            exit(1); \
        } \
    } while (0)

struct Out {
    Bytes bytes;
    bool error, truncated, captured;
    uint64_t stamp;
    uint32_t id;
};
struct Count {
    uint64_t frame = 0, end = 0, bytes = 0, error = 0, runt = 0, truncated = 0, lost = 0, captured = 0, captured_lost = 0;
    bool operator==(const Count& o) const { return !memcmp(this, &o, sizeof o); }
    void print(const char* who) const {
        printf("%s: frames %llu/%llu bytes %llu errors %llu runts %llu truncated %llu lost %llu captured %llu/%llu\n", who,
               (unsigned long long)frame, (unsigned long long)end, (unsigned long long)bytes, (unsigned long long)error,
               (unsigned long long)runt, (unsigned long long)truncated, (unsigned long long)lost, (unsigned long long)captured,
               (unsigned long long)captured_lost);
    }
};

int main() {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937_64 rng{Width};
    uint64_t cycle = 0;
    std::deque<Out> expected;
    Count want, got;
    Bytes at_out;
    unsigned passed = 0;

    auto pick = [&](unsigned n) { return unsigned(rng() % n); };
    auto clock = [&] {
        t.time_ns = cycle * 3 + 5000000000;
        t.eval();
        t.clk = 1, t.eval();
        t.clk = 0, t.eval();
        cycle++;
        got.frame += t.cnt_frame, got.end += t.cnt_frame_end, got.bytes += t.cnt_frame_end ? t.cnt_bytes : 0;
        got.error += t.cnt_error, got.runt += t.cnt_runt, got.truncated += t.cnt_truncated, got.lost += t.cnt_lost;
        got.captured += t.cnt_captured, got.captured_lost += t.cnt_captured_lost;
        CHECK(!t.out_valid || t.s_axis_tvalid, "a beat out without one in the clock before");
        if (!t.out_valid) return;
        CHECK(!expected.empty(), "a beat that nobody expects");
        const Out& e = expected.front();
        CHECK(t.out_sof == at_out.empty(), "sof is %d", t.out_sof);
        CHECK(t.out_stamp == e.stamp && t.out_packet_id == e.id && t.out_captured == e.captured, "stamp, id or captured");
        unsigned n = __builtin_popcountll(t.out_keep);
        const uint8_t* p = (const uint8_t*)&t.out_data;
        at_out.insert(at_out.end(), p, p + n);
        CHECK(at_out.size() <= e.bytes.size(), "longer than it came");
        CHECK(t.out_last == (at_out.size() == e.bytes.size()), "last at byte %zu of %zu", at_out.size(), e.bytes.size());
        if (!t.out_last) return;
        CHECK(at_out == e.bytes, "other bytes");
        CHECK(t.out_error == e.error && t.out_truncated == e.truncated, "error %d, truncated %d", t.out_error, t.out_truncated);
        at_out.clear();
        expected.pop_front();
        passed++;
    };

    t.clk = 0;
    t.rst = 1;
    t.s_axis_tvalid = 0;
    for (int i = 0; i < 3; i++) clock();
    t.rst = 0;
    uint32_t id = 0;
    for (int i = 0; i < 6000; i++) {
        size_t len;
        switch (pick(10)) {
            case 0: len = MaxFrame - 1 + pick(3); break;
            case 1: len = MaxFrame + pick(200); break;
            case 2: len = 59 + pick(3); break;
            case 3: len = 1 + pick(2000); break;
            case 4: len = pick(100) ? 60 : 65500 + pick(100); break;
            default: len = 1 + pick(200);
        }
        Bytes f(len);
        for (auto& b : f) b = rng();
        bool error = !pick(5), bubbles = pick(2);
        for (size_t at = 0; at < len; at += Width) {
            t.s_axis_tvalid = 0;
            t.s_axis_tlast = pick(2), t.s_axis_tuser = pick(2);  // mean nothing without valid
            while ((bubbles || !at) && !pick(3)) t.admit = pick(2), t.capture = pick(2), clock();
            size_t n = std::min(Width, len - at);
            memset(&t.s_axis_tdata, 0xa5, Width);
            memcpy(&t.s_axis_tdata, &f[at], n);
            t.s_axis_tkeep = n == 64 ? ~0ull : (1ull << n) - 1;
            t.s_axis_tvalid = 1;
            t.s_axis_tlast = at + n == len;
            t.s_axis_tuser = t.s_axis_tlast ? error : pick(2);
            t.admit = pick(4) != 0, t.capture = pick(2);
            if (at == 0) {
                bool cut = len > MaxFrame;
                want.frame++, want.end++, want.bytes += std::min<size_t>(len, 65535);
                want.error += error, want.runt += len < 60, want.truncated += cut, want.lost += !t.admit;
                want.captured += t.capture, want.captured_lost += t.capture && !t.admit;
                if (t.admit) {
                    Bytes kept(f.begin(), f.begin() + std::min(len, MaxFrame));
                    expected.push_back({kept, error || cut, cut, bool(t.capture), cycle * 3 + 5000000000, id++});
                }
            }
            clock();
        }
    }
    t.s_axis_tvalid = 0;
    clock(), clock();
    CHECK(expected.empty(), "%zu frames did not come out", expected.size());
    if (!(got == want)) return want.print("want"), got.print("got "), 1;
    if (passed < 3000 || want.truncated < 500 || want.lost < 500) return printf("not exercised\n"), 1;
    return 0;
}
