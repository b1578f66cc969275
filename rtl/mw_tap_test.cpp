// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random frames whose records come before, with and after them, against what docs/formats.md
// says of an entry: fields, snapshot, zeros. The reader stops at times; what is lost then must
// be counted, and must have had no room.
// uses: mw_fifo
// verilate: -GDATA_W=512 -GSNAP_LOG2=7 -GQUEUE_LOG2=4 -GINFLIGHT_LOG2=6
// verilate: -GDATA_W=64 -GSNAP_LOG2=10 -GQUEUE_LOG2=4 -GINFLIGHT_LOG2=6
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_block.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;

constexpr unsigned BEAT = sizeof(Vtop::in_data);
constexpr unsigned QUEUE = 16, SNAP_WORDS = BEAT == 64 ? 128 : 1024;

#define CHECK(cond, ...)                                                                                   \
    do {                                                                                                   \
        if (!(cond)) {                                                                                     \
            printf("line %d, cycle %llu: %s: ", __LINE__, (unsigned long long)cycle, #cond);               \
            printf(__VA_ARGS__);                                                                           \
            printf("\n");                                                                                  \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

struct Frame {
    Bytes bytes, record;
    uint64_t stamp;
    bool wanted, error, truncated;
    // as it came in:
    bool place_left = true, snapshot_room = true;
    uint64_t begun = 0;
};

struct Config {
    unsigned snapshot = 0, wanted = 100;  // percent
    unsigned beat_gap = 0, frame_gap = 0; // one in so many beats is late; idle cycles after a frame
    bool with_sof = false;                // records come with the first beat
    unsigned lead = 0, lag = 0;           // a record comes up to so many frames early, so many cycles late
    unsigned stall = 0;                   // the reader: once in so many not ready
    unsigned halt = 0;                    // percent of the time that it does not read at all
    unsigned max_length = 10240;
};

struct Bench {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937 rng{7};
    uint64_t cycle = 0;
    Config c;

    std::deque<Frame> coming;    // the first is on its way in
    std::deque<Frame> expected;  // wanted and begun, not yet seen or known to be lost
    std::deque<uint64_t> room;   // tap_room of the last cycles
    size_t at = 0;               // bytes of the frame that have come in
    unsigned gap = 0;
    size_t next_record = 0;      // of `coming` and those before, whose records are still due
    struct Due { Bytes record; uint64_t stamp, not_before; };
    std::deque<Due> records;     // of frames that have begun
    unsigned early = 0;          // records given ahead of their frames
    uint32_t id = 0;
    uint64_t places = 0, words = 0;  // at most taken in the queue and the snapshot buffer

    uint64_t wanted = 0, done = 0, kept = 0, lost = 0, snapshots_lost = 0, seen = 0, seen_snapshots_lost = 0, skipped = 0;
    uint64_t snapshots = 0;
    Bytes entry;                 // units of it so far
    uint32_t time_hi = 0;
    bool held = false, held_first = false, held_last = false;
    uint32_t held_data[8] = {};

    void edge() { t.clk = 1, t.eval(), t.clk = 0, t.eval(); }
    bool chance(unsigned n) { return n && rng() % n == 0; }

    Bench() {
        t.clk = 0, t.rst = 1, t.in_valid = 0, t.rec_valid = 0, t.out_ready = 0, t.snapshot_bytes = 0, t.in_sof = 0, t.in_last = 0;
        t.eval();
        edge(), edge();
        t.rst = 0;
    }

    unsigned snap_words(const Frame &f) const {
        return (std::min<size_t>(f.bytes.size(), c.snapshot) + BEAT - 1) / BEAT;
    }

    Frame make() {
        Frame f;
        const unsigned lengths[] = {1, 14, 59, 60, 64, 65, 128, 1514, 10240, 1 + unsigned(rng() % 300), 1 + unsigned(rng() % 10240)};
        f.bytes.resize(std::min(lengths[rng() % 11], c.max_length));
        for (auto &b : f.bytes) b = 1 + rng() % 255;
        f.record.resize(32);
        for (auto &b : f.record) b = rng();
        memcpy(&f.record[8], &id, 4);
        id++;
        f.stamp = uint64_t(rng()) << 32 | rng();
        f.wanted = rng() % 100 < c.wanted;
        f.error = chance(5), f.truncated = chance(5);
        return f;
    }

    void give(const Bytes &record, uint64_t stamp) {
        t.rec_valid = 1;
        for (int w = 0; w < 8; w++) t.rec[w] = load32(&record[w * 4]);
        t.rec_stamp = stamp;
    }

    void tick(bool offer) {
        t.snapshot_bytes = c.snapshot;
        t.in_valid = 0, t.rec_valid = 0;
        t.in_sof = rng() % 2, t.in_last = rng() % 2, t.in_wanted = rng() % 2, t.in_error = rng() % 2;
        // tap_room acts late, as admission lies some stages before
        room.push_back(t.tap_room);
        const bool admitted = room.front();
        if (room.size() > 8) room.pop_front();
        while (offer && coming.size() < c.lead + 2) coming.push_back(make());
        bool ended = false;
        if (gap) gap--;
        else if (!coming.empty() && (at ? !chance(c.beat_gap) : offer && (early || admitted))) {
            Frame &f = coming.front();
            t.in_valid = 1;
            t.in_sof = at == 0;
            if (at == 0) {
                t.in_wanted = f.wanted;
                f.place_left = places < QUEUE, f.snapshot_room = words + snap_words(f) <= SNAP_WORDS, f.begun = cycle;
                if (c.with_sof) give(f.record, f.stamp);
                else if (early) early--;
                else records.push_back({f.record, f.stamp, cycle + (c.lag ? rng() % c.lag : 0)});
            }
            const size_t n = std::min<size_t>(BEAT, f.bytes.size() - at);
            Bytes beat(BEAT);
            for (auto &b : beat) b = rng();  // what keep excludes is anything
            memcpy(beat.data(), &f.bytes[at], n);
            memcpy(&t.in_data, beat.data(), BEAT);
            t.in_keep = n == 64 ? ~0ull : (1ull << n) - 1;
            at += n;
            ended = at == f.bytes.size();
            t.in_last = ended;
            if (ended) t.in_error = f.error, t.in_truncated = f.truncated;
        }
        if (!c.with_sof) {
            if (!records.empty() && records.front().not_before <= cycle) {
                give(records.front().record, records.front().stamp);
                records.pop_front();
            } else if (admitted && records.empty() && early < c.lead && chance(3)) {
                const size_t next = early + (at != 0);  // frames that have begun have theirs
                if (next < coming.size()) give(coming[next].record, coming[next].stamp), early++;
            }
        }
        const bool halted = c.halt && (cycle / 4096 * 2654435761u >> 8) % 100 < c.halt;
        t.out_ready = !halted && !chance(c.stall);
        t.eval();
        const bool quiet = !t.busy && !t.in_valid && !t.rec_valid;
        const bool valid = t.out_valid;
        if (quiet) CHECK(!(t.out_valid && t.out_ready) && !t.done_captured && !t.cnt_record && !t.cnt_lost, "moves and is not busy");

        output();
        CHECK(t.done_captured == (t.cnt_record || t.cnt_lost) && !(t.cnt_record && t.cnt_lost), "pulses");
        CHECK(!t.cnt_snapshot_lost || t.cnt_record, "a snapshot lost of no record");
        done += t.done_captured, kept += t.cnt_record, lost += t.cnt_lost, snapshots_lost += t.cnt_snapshot_lost;
        edge();
        if (quiet) CHECK(t.out_valid == valid, "changed and was not busy");
        if (t.in_valid && t.in_sof && coming.front().wanted) {
            places++, words += snap_words(coming.front());
            wanted++;
            expected.push_back(coming.front());
        }
        if (ended) coming.pop_front(), at = 0, gap = c.frame_gap ? rng() % c.frame_gap : 0;
        cycle++;
    }

    void output() {
        if (held) {
            CHECK(t.out_valid && t.out_first == held_first && t.out_last == held_last, "changed while it waited");
            for (int w = 0; w < 8; w++) CHECK(t.out_data[w] == held_data[w], "data changed while it waited");
        }
        held = t.out_valid && !t.out_ready;
        held_first = t.out_first, held_last = t.out_last;
        for (int w = 0; w < 8; w++) held_data[w] = t.out_data[w];
        if (!t.out_valid || !t.out_ready) return;
        CHECK(t.out_first == entry.empty(), "first");
        if (t.out_first) time_hi = t.out_time_hi;
        entry.insert(entry.end(), (uint8_t *)&held_data, (uint8_t *)(&held_data + 1));
        if (t.out_last) check(), entry.clear();
    }

    void check() {
        // Frames before this one in `expected` have been lost.
        for (;; expected.pop_front()) {
            CHECK(!expected.empty(), "a record of no frame");
            if (load32(&entry[8]) == load32(&expected.front().record[8])) break;
            drop();
        }
        const Frame &f = expected.front();
        Bytes want = f.record;
        const uint32_t low = f.stamp;
        const uint16_t length = f.bytes.size();
        const size_t n = std::min<size_t>(length, c.snapshot);
        const bool snapshot = entry[5] & FLAG_SNAPSHOT;
        memcpy(&want[0], &low, 4);
        memcpy(&want[6], &length, 2);
        want[5] = (want[5] & ~(1 << 1 | 1 << 5 | FLAG_SNAPSHOT)) | f.error << 1 | f.truncated << 5 | snapshot << 3;
        if (snapshot) {
            want.insert(want.end(), f.bytes.begin(), f.bytes.begin() + n);
            want.resize((want.size() + 31) / 32 * 32);
        } else if (n) {
            CHECK(!f.snapshot_room, "a snapshot lost though there was room");
            seen_snapshots_lost++;
        }
        snapshots += snapshot;
        CHECK(n || !snapshot, "a snapshot of nothing");
        CHECK(entry == want, "content of record %u, %zu units for %zu", load32(&f.record[8]), entry.size() / 32, want.size() / 32);
        CHECK(time_hi == f.stamp >> 32, "time_hi");
        CHECK(entry.size() == 32 * entry_units(entry.data(), c.snapshot), "units");
        seen++;
        places--, words -= snap_words(f);
        expected.pop_front();
    }

    // A frame without its entry: there can have been no place for it when it began.
    void drop() {
        const Frame &f = expected.front();
        CHECK(!f.place_left, "record %u lost though there was room", load32(&f.record[8]));
        skipped++;
        places--, words -= snap_words(f);
    }

    void run(const char *name, const Config &config, uint64_t cycles) {
        c = config;
        wanted = done = kept = lost = snapshots_lost = seen = seen_snapshots_lost = skipped = snapshots = 0;
        const uint64_t from = cycle, first = id;
        tick(false);  // snapshot_bytes stands from the clock before the first frame
        for (uint64_t i = 0; i < cycles; i++) tick(true);
        c.halt = 0, c.stall = 0, c.lead = 0;
        for (int i = 0; at; i++) {
            tick(false);
            CHECK(i < 1000000, "%s: a frame does not end", name);
        }
        // Frames that were made ahead begin no more; neither may their records wait here.
        while (early) tick(true);
        while (at) tick(false);
        for (int i = 0; i < 5000; i++) tick(false);
        coming.clear();
        for (; !expected.empty(); expected.pop_front()) drop();
        CHECK(records.empty(), "%s: records left", name);
        CHECK(!t.busy && !t.out_valid && entry.empty(), "%s: no rest", name);
        CHECK(done == wanted && kept == seen && lost == skipped, "%s: %llu wanted, %llu done, %llu kept, %llu seen, %llu lost, %llu missing",
              name, (unsigned long long)wanted, (unsigned long long)done, (unsigned long long)kept, (unsigned long long)seen,
              (unsigned long long)lost, (unsigned long long)skipped);
        CHECK(snapshots_lost == seen_snapshots_lost, "%s: snapshots lost %llu, missing %llu", name, (unsigned long long)snapshots_lost,
              (unsigned long long)seen_snapshots_lost);
        CHECK(places == 0 && words == 0, "%s: bench", name);
        printf("%-10s %llu cycles, %llu frames, %llu wanted, %llu lost, %llu snapshots, %llu snapshots lost\n", name,
               (unsigned long long)(cycle - from), (unsigned long long)(id - first), (unsigned long long)wanted,
               (unsigned long long)lost, (unsigned long long)snapshots, (unsigned long long)snapshots_lost);
    }
};

int main() {
    Bench b;
    uint64_t &cycle = b.cycle;

    Config dense;  // a frame in every cycle at 512 bits, a record each
    dense.max_length = 60, dense.with_sof = true;
    b.run("dense", dense, 20000);
    CHECK(b.lost == 0 && b.wanted > (BEAT == 64 ? 19900 : 2900), "%llu lost of %llu", (unsigned long long)b.lost, (unsigned long long)b.wanted);

    Config ingress;
    ingress.snapshot = 128, ingress.beat_gap = 5, ingress.frame_gap = 20, ingress.lead = 3, ingress.lag = 40, ingress.wanted = 70;
    ingress.stall = 3;
    b.run("ingress", ingress, 200000);
    CHECK(b.snapshots > 300, "not exercised");

    Config late = ingress;  // the matcher is slow: frames end long before their records come
    late.lag = 300, late.frame_gap = 0, late.max_length = 100;
    b.run("late", late, 100000);

    Config ahead = ingress;  // records far ahead of long frames
    ahead.lead = 100, ahead.lag = 0;
    b.run("ahead", ahead, 100000);

    Config halting = ingress;
    halting.halt = 50, halting.snapshot = 4096, halting.frame_gap = 60;
    b.run("halting", halting, 400000);
    CHECK(b.snapshots_lost > 20 && b.snapshots > 20, "not exercised");

    Config small = halting;
    small.snapshot = 32, small.max_length = 200, small.with_sof = true, small.halt = 70;
    b.run("small", small, 200000);
    CHECK(b.lost > 100, "not exercised");

    Config whole;
    whole.snapshot = 10240, whole.with_sof = true, whole.frame_gap = 2000;
    b.run("whole", whole, 300000);
    CHECK(b.snapshots > 50 && b.lost == 0, "not exercised");

    Config unwanted = ingress;
    unwanted.wanted = 0, unwanted.halt = 100;
    b.run("unwanted", unwanted, 50000);
    CHECK(b.wanted == 0, "bench");

    for (int i = 0; i < 40; i++) {
        Config r;
        r.snapshot = b.rng() % 4 ? b.rng() % 20 * 32 : b.rng() % 321 * 32;
        r.wanted = b.rng() % 101, r.beat_gap = b.rng() % 2 * (2 + b.rng() % 9), r.frame_gap = b.rng() % 3 * (b.rng() % 100);
        r.with_sof = b.rng() % 2, r.lead = b.rng() % 4, r.lag = b.rng() % 60, r.stall = b.rng() % 2 * (2 + b.rng() % 4);
        r.halt = b.rng() % 3 * 30, r.max_length = b.rng() % 2 ? 10240 : 60 + b.rng() % 600;
        b.run("random", r, 20000);
    }
    return 0;
}
