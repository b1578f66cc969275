// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Random templates and random packets on both lanes, against frames built from docs/tables.md
// with their checksums computed over the whole frame. Checked: every frame and its record, on
// which lane and in what order, the padding, what is refused or finds no room and is counted,
// rows that the host reads back while frames are made; and resets amid all that.
//
// uses: mw_fifo mw_ram
// verilate: -GDATA_W=512 -GQUEUE_LOG2=3
// verilate: -GDATA_W=64 -GQUEUE_LOG2=1
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "mw_types.h"
#include "verilated.h"

using Bytes = std::vector<uint8_t>;
static constexpr unsigned Width = sizeof(Vtop::add_data), Queue = Width == 64 ? 8 : 2, Head = 128, Pairs = 64, ByteRows = 512 - 2 * Pairs;

static uint64_t cycle = 0;
#define CHECK(cond, ...) \
    do { \
        if (!(cond)) { \
            printf("clock %llu: ", (unsigned long long)cycle); \
            printf(__VA_ARGS__); \
            printf("\n"); \
            exit(1); \
        } \
    } while (0)

// A step of a template, docs/tables.md.
struct Step {
    enum Kind { Literal, Seen, Tags, Ip, L4, Next, IpSum, L4Sum, Icrc } kind;
    unsigned n = 0, base = 0, offset = 0;
    uint16_t word() const {
        switch (kind) {
            case Literal: return 1 | n << 2;
            case Seen: return 2 | base << 2 | (n - 1) << 4 | offset << 9;
            default: return 3 | (kind - Tags) << 2;
        }
    }
};

struct Template {
    bool valid = false, back = false;
    unsigned protos = 0, row = 0;
    uint16_t sum = 0;
    std::vector<Step> steps;
    Bytes literals;
};

struct Packet {
    bool lane, captured;
    uint8_t number, l3, l4;
    Record rec;
    Bytes head;
};

static uint16_t fold(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

// InfiniBand annex A17: CRC-32 after eight bytes of ones, fields that may change being ones.
static uint32_t icrc(const Bytes& f, size_t ip, size_t l4, size_t end, bool ip6) {
    uint32_t crc = ~0u;
    auto add = [&](uint8_t b) {
        crc ^= b;
        for (int i = 0; i < 8; i++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    };
    for (int i = 0; i < 8; i++) add(0xff);
    for (size_t at = ip; at < end; at++) {
        size_t n = at - ip;
        uint8_t ones = 0;
        if (at >= l4) {
            if (at - l4 == 6 || at - l4 == 7 || at - l4 == 12) ones = 0xff;
        } else if (ip6) {
            ones = n == 0 ? 0x0f : n <= 3 || n == 7 ? 0xff : 0;
        } else if (n == 1 || n == 8 || n == 10 || n == 11) {
            ones = 0xff;
        }
        add(f[at] | ones);
    }
    return ~crc;
}

static Bytes build(const Template& t, const Packet& p) {
    Bytes f;
    size_t lit = 0, ip = ~0ul, l4 = ~0ul, ip_sum = ~0ul, l4_sum = ~0ul, crc_at = ~0ul;
    for (const Step& s : t.steps) {
        auto seen = [&](unsigned from, unsigned n) {
            for (unsigned i = 0; i < n; i++) f.push_back(p.head[(from + i) % Head]);
        };
        switch (s.kind) {
            case Step::Literal:
                for (unsigned i = 0; i < s.n; i++) f.push_back(t.literals[lit++]);
                break;
            case Step::Seen: seen((s.base == 1 ? p.l3 : s.base == 2 ? p.l4 : 0) + s.offset, s.n); break;
            case Step::Tags: seen(12, p.l3 - 12); break;
            case Step::Ip: ip = f.size(); break;
            case Step::L4: l4 = f.size(); break;
            case Step::Next: {
                uint32_t next = p.rec.f0 + p.rec.payload_len + (p.rec.tcp_flags & 1) + (p.rec.tcp_flags >> 1 & 1);
                for (int i = 3; i >= 0; i--) f.push_back(next >> i * 8);
                break;
            }
            case Step::IpSum: ip_sum = f.size(), f.resize(f.size() + 2, 0); break;
            case Step::L4Sum: l4_sum = f.size(), f.resize(f.size() + 2, 0); break;
            case Step::Icrc: crc_at = f.size(), f.resize(f.size() + 4, 0); break;
        }
    }
    const size_t end = crc_at != ~0ul ? crc_at : f.size();
    auto words = [&](size_t from, size_t to) {
        uint64_t sum = 0;
        for (size_t i = from; i < to && i < f.size(); i++) sum += (i - ip) & 1 ? f[i] : f[i] << 8;
        return sum;
    };
    auto put = [&](size_t at, uint16_t v) { f[at] = v >> 8, f[at + 1] = v; };
    // The L4 sum is over zeros in place of itself, and not over the IP checksum.
    uint16_t transport = 0, header = 0;
    if (l4_sum != ~0ul) {
        uint64_t sum = t.sum + words(l4, end) + words(ip + (p.rec.is_ip6 ? 8 : 12), std::min(l4, end));
        transport = ~fold(sum);
        if (transport == 0 && p.rec.proto != ProtoTcp) transport = 0xffff;
    }
    if (ip_sum != ~0ul) header = ~fold(words(ip, std::min(l4, end)));
    if (l4_sum != ~0ul) put(l4_sum, transport);
    if (ip_sum != ~0ul) put(ip_sum, header);
    if (crc_at != ~0ul) {
        // The transport checksum of a RoCE packet counts as ones; where it is somewhere else, what stands there
        // while the sums are worked out counts: nothing.
        Bytes g = f;
        if (l4_sum != ~0ul) put(l4_sum, 0);
        if (ip_sum != ~0ul) put(ip_sum, 0);
        uint32_t crc = icrc(f, ip, l4, crc_at, p.rec.is_ip6);
        f = g;
        for (int i = 0; i < 4; i++) f[crc_at + i] = crc >> i * 8;
    }
    if (f.size() < 60) f.resize(60, 0);
    return f;
}

struct Bench {
    VerilatedContext ctx;
    Vtop t{&ctx};
    std::mt19937_64 rng{Width};
    Template templates[2 * Pairs];
    Row rows[512];
    std::deque<Packet> queue[2];
    unsigned full = 0, refused = 0, want_refused = 0, made = 0, most_clocks = 0, icrcs = 0, padded = 0, long_ones = 0, read_back = 0;
    unsigned pick(unsigned n) { return rng() % n; }

    Bytes got;
    bool got_captured = false;
    Record got_rec;
    int got_lane = -1;
    uint64_t idle_since = 0;

    void edge() { t.clk = 1, t.eval(), t.clk = 0, t.eval(), cycle++; }

    // One clock with what is driven at the inputs.
    void clock(unsigned readiness = 70) {
        t.add_ready = (pick(100) < readiness) | (pick(100) < readiness) << 1;
        t.eval();
        for (int l = 0; l < 2; l++) {
            full += t.cnt_full >> l & 1;
            if (t.cnt_refused >> l & 1) {
                refused++;
                CHECK(!queue[l].empty(), "refused nobody");
                CHECK(refusable(queue[l].front()), "refused a packet that has a template");
                queue[l].pop_front();
            }
        }
        CHECK(t.add_valid != 3, "both lanes at once");
        if (t.add_valid & t.add_ready) beat(t.add_valid >> 1);
        edge();
    }

    const Template& of(const Packet& p) { return templates[2 * (p.number % Pairs) + p.rec.is_ip6]; }
    bool refusable(const Packet& p) { return p.number >= Pairs || !of(p).valid || !(of(p).protos >> p.rec.proto & 1); }

    void beat(int lane) {
        CHECK(t.add_sof == got.empty(), "sof is %d", t.add_sof);
        if (t.add_sof) {
            got_lane = lane, got_captured = t.add_captured;
            Bits b(t.add_rec.data());
            got_rec.io(b, false);
        }
        CHECK(got_lane == lane, "a frame on two lanes");
        unsigned n = t.add_last ? t.add_len + 1 : Width;
        const uint8_t* d = (const uint8_t*)&t.add_data;
        got.insert(got.end(), d, d + n);
        if (!t.add_last) return;
        // Of the two lanes any may be served first; what it answers is known by its id.
        for (int l = 0; l < 2; l++) {
            if (queue[l].empty() || queue[l].front().rec.packet_id != got_rec.packet_id) continue;
            Packet p = queue[l].front();
            queue[l].pop_front();
            const Template& tm = of(p);
            CHECK(!refusable(p), "a frame of no template");
            CHECK(lane == (p.lane ^ tm.back), "on lane %d", lane);
            Bytes want = build(tm, p);
            if (got != want) {
                size_t i = 0;
                while (i < got.size() && i < want.size() && got[i] == want[i]) i++;
                printf("template %d, %zu steps, ip6 %d, l3 %u, l4 %u:", p.number, tm.steps.size(), p.rec.is_ip6, p.l3, p.l4);
                for (auto& s : tm.steps) printf(" %d(%u %u+%u)", s.kind, s.n, s.base, s.offset);
                printf("\n");
                CHECK(false, "%zu bytes, not %zu; byte %zu is %02x, not %02x", got.size(), want.size(), i, got[i], want[i]);
            }
            CHECK(got_captured == p.captured, "captured is %d", got_captured);
            Record r = p.rec;
            r.lane = lane, r.tap = true, r.kind = 9, r.done = 0, r.f2 = tm.back;
            uint32_t a[8] = {}, b[8] = {};
            Bits ba(a), bb(b);
            r.io(ba, true), got_rec.io(bb, true);
            CHECK(!memcmp(a, b, 32), "record");
            made++;
            padded += want.size() == 60, long_ones += want.size() > 1000;
            for (auto& s : tm.steps) icrcs += s.kind == Step::Icrc;
            got.clear();
            return;
        }
        CHECK(false, "a frame in answer to nobody");
    }

    // ---- Tables ----
    void request(bool write, uint32_t index, Row& row) {
        table_request(t.tbl_req.data(), true, write, TblTemplate, pick(2), index, row);
        for (int i = 0; i < 2000; i++) {
            t.eval();
            if (t.tbl_ack) break;
            clock();
        }
        CHECK(t.tbl_ack, "no answer from the table");
        if (!write) memcpy(row.w, t.tbl_rdata.data(), sizeof row.w);
        Row none;
        table_request(t.tbl_req.data(), false, false, TblTemplate, false, 0, none);
        clock();
    }
    void write(uint32_t index, const Row& row) {
        rows[index] = row;
        Row r = row;
        request(true, index, r);
    }

    Template random_template(unsigned& next_row) {
        Template m;
        m.valid = pick(10), m.back = pick(2), m.protos = pick(4) ? 15 : pick(16), m.sum = rng();
        m.row = 2 * Pairs + next_row;
        auto literal = [&](unsigned n) {
            m.steps.push_back({Step::Literal, n});
            while (n--) m.literals.push_back(rng());
        };
        auto seen = [&] {
            unsigned base = pick(3);
            m.steps.push_back({Step::Seen, 1 + (pick(8) ? pick(16) : pick(32)), base, pick(base ? 30 : 60)});
        };
        for (unsigned i = pick(3); i; i--) pick(2) ? seen() : literal(1 + pick(12));
        if (pick(2)) m.steps.push_back({Step::Tags});
        if (pick(8)) {
            m.steps.push_back({Step::Ip});
            // Sums are of 16-bit words: the parts before the transport header are even.
            auto even = [&](unsigned n) {
                if (pick(2)) literal(n);
                else m.steps.push_back({Step::Seen, n, pick(3), pick(40)});
            };
            unsigned left = 20;
            unsigned head = 2 * pick(5);
            if (head) even(head), left -= head;
            if (pick(4)) m.steps.push_back({Step::IpSum}), left -= 2;
            even(left);
            if (pick(2)) even(20);
            m.steps.push_back({Step::L4});
            for (unsigned i = pick(4); i; i--) pick(2) ? seen() : literal(1 + pick(20));
            if (pick(2)) m.steps.push_back({Step::Next});
            bool even_now = true;
            unsigned bytes = 0, in = 0;
            for (auto& s : m.steps) {
                if (s.kind == Step::L4) in = 1, bytes = 0;
                else bytes += s.kind == Step::Next ? 4 : s.kind == Step::Literal || s.kind == Step::Seen ? s.n : 0;
            }
            even_now = in && bytes % 2 == 0;
            if (even_now && pick(4)) m.steps.push_back({Step::L4Sum});
            if (pick(2)) literal(pick(6) ? 1 + pick(40) : 500 + pick(900));
            if (pick(2)) m.steps.push_back({Step::Icrc});
        } else {
            literal(1 + pick(1500));
        }
        if (m.steps.size() > 24) return random_template(next_row);
        next_row += (m.literals.size() + 63) / 64;
        return m;
    }

    void fill() {
        unsigned next_row = 0;
        for (unsigned n = 0; n < 2 * Pairs; n++) {
            unsigned before = next_row;
            Template m = random_template(next_row);
            if (next_row > ByteRows) next_row = before, m = Template{};
            templates[n] = m;
            Row row;
            Bits b = row.bits();
            b.put(1, m.valid), b.put(4, m.protos), b.put(1, m.back), b.put(16, m.sum), b.put(9, m.row);
            b.seek(128);
            for (auto& s : m.steps) b.put(16, s.word());
            write(n, row);
            for (size_t at = 0; at < m.literals.size(); at += 64) {
                Row r;
                for (size_t i = at; i < at + 64 && i < m.literals.size(); i++) ((uint8_t*)r.w)[i - at] = m.literals[i];
                write(m.row + at / 64, r);
            }
        }
    }

    // ---- Packets ----
    Packet next[2];
    unsigned beat_of[2] = {}, gap[2] = {};
    uint32_t id = 0;
    void drive(unsigned busy) {
        uint32_t words[sizeof t.seen / 4 + 1] = {};
        t.seen_valid = t.seen_sof = t.seen_last = 0;
        for (int l = 0; l < 2; l++) {
            if (gap[l]) {
                gap[l]--;
                continue;
            }
            Packet& p = next[l];
            if (!beat_of[l]) {
                p.lane = l, p.captured = pick(2);
                p.number = pick(12) ? pick(Pairs) : pick(256);
                p.l3 = 14 + 4 * pick(3);
                Record& r = p.rec;
                uint32_t w[8];
                for (auto& x : w) x = rng();
                Bits b(w);
                r.io(b, false);
                r.is_ip6 = pick(2), r.packet_id = id++, r.lane = l, r.proto = pick(4);
                p.l4 = p.l3 + (r.is_ip6 ? 40 : 20 + 4 * pick(3));
                p.head.resize(Head);
                for (auto& x : p.head) x = rng();
                p.head.resize(Head);
            }
            const unsigned beats = Head / Width;
            // A short frame ends before; what its template takes from behind is anything, so it takes nothing.
            memcpy((uint8_t*)&t.seen_data + l * Width, &p.head[beat_of[l] * Width], Width);
            t.seen_valid |= 1 << l, t.seen_sof |= (beat_of[l] == 0) << l, t.seen_last |= (beat_of[l] == beats - 1) << l;
            if (++beat_of[l] == beats) beat_of[l] = 0, gap[l] = pick(busy), arrived[l] = true;
        }
        // seen_t [1:0], lane 0 low: rec, l4, l3, template, captured.
        Bits b(words);
        for (int l = 0; l < 2; l++) {
            Packet& p = next[l];
            b.seek(l * 281);
            p.rec.io(b, true);
            b.put(8, p.l4), b.put(8, p.l3), b.put(8, p.number), b.put(1, p.captured);
        }
        memcpy(&t.seen, words, sizeof t.seen);
    }
    bool arrived[2] = {}, accepted[2] = {};

    void traffic(unsigned clocks, unsigned busy, unsigned readiness) {
        for (unsigned i = 0; i < clocks; i++) {
            drive(busy);
            t.eval();
            // A packet is lost when its queue is full at its first beat: told in the next clock.
            bool sof[2] = {bool(t.seen_valid & t.seen_sof & 1), bool(t.seen_valid & t.seen_sof & 2)};
            bool last[2] = {bool(t.seen_last & t.seen_valid & 1), bool(t.seen_last & t.seen_valid & 2)};
            clock(readiness);
            for (int l = 0; l < 2; l++) {
                if (sof[l]) accepted[l] = !(t.cnt_full >> l & 1);
                if (last[l] && accepted[l]) queue[l].push_back(next[l]);
                CHECK(queue[l].size() <= Queue, "more than the queue holds");
            }
            if (!pick(400)) {
                unsigned index = pick(512);
                t.seen_valid = 0;
                if (beat_of[0] || beat_of[1]) continue;
                Row r;
                request(false, index, r);
                CHECK(!memcmp(r.w, rows[index].w, sizeof r.w), "row %u reads otherwise", index);
                read_back++;
            }
        }
    }

    void run(unsigned clocks, unsigned busy, unsigned readiness) {
        traffic(clocks, busy, readiness);
        // The packets that have begun end.
        t.seen_valid = 0;
        while (beat_of[0] || beat_of[1]) {
            for (int l = 0; l < 2; l++)
                if (!beat_of[l]) gap[l] = 1000;
            drive(1000);
            bool last[2] = {bool(t.seen_last & t.seen_valid & 1), bool(t.seen_last & t.seen_valid & 2)};
            bool sof[2] = {bool(t.seen_valid & t.seen_sof & 1), bool(t.seen_valid & t.seen_sof & 2)};
            clock(readiness);
            for (int l = 0; l < 2; l++) {
                if (sof[l]) accepted[l] = !(t.cnt_full >> l & 1);
                if (last[l] && accepted[l]) queue[l].push_back(next[l]);
            }
        }
        t.seen_valid = 0;
        for (int i = 0; i < 200000 && (queue[0].size() || queue[1].size() || t.busy); i++) clock(100);
        CHECK(queue[0].empty() && queue[1].empty() && got.empty(), "%zu and %zu packets have no answer", queue[0].size(), queue[1].size());
        CHECK(!t.busy, "busy at rest");
        gap[0] = gap[1] = 0;
    }

    // One clock of reset, at any time: nothing of what came before it is left.
    void reset() {
        traffic(pick(400), 100, 70);
        t.seen_valid = 0, t.rst = 1;
        edge();
        t.rst = 0;
        for (int l = 0; l < 2; l++) queue[l].clear(), beat_of[l] = gap[l] = 0;
        got.clear();
        run(200, 100, 100);
    }

    // Clocks from the last beat of the packet to the last of the frame.
    void speed() {
        Template m;
        m.valid = true, m.protos = 15, m.row = 2 * Pairs;
        m.steps = {{Step::Seen, 6, 0, 6}, {Step::Seen, 6, 0, 0}, {Step::Tags}, {Step::Ip}, {Step::Literal, 10}, {Step::IpSum}, {Step::Seen, 4, 1, 16},
                   {Step::Seen, 4, 1, 12}, {Step::L4}, {Step::Seen, 2, 2, 2}, {Step::Seen, 2, 2, 0}, {Step::Seen, 4, 2, 8}, {Step::Next}, {Step::Literal, 4}, {Step::L4Sum}, {Step::Literal, 2}};
        m.literals.resize(16, 0x45);
        for (unsigned n = 0; n < 2; n++) {
            templates[n] = m;
            Row row;
            Bits b = row.bits();
            b.put(1, 1), b.put(4, 15), b.put(1, 0), b.put(16, 0), b.put(9, m.row);
            b.seek(128);
            for (auto& s : m.steps) b.put(16, s.word());
            write(n, row);
        }
        Row r;
        memset(r.w, 0x45, 16);
        write(m.row, r);
        uint64_t before = cycle;
        run(0, 1, 100);
        gap[0] = 0, gap[1] = 1000000;
        for (bool first = true; first || beat_of[0]; first = false) {
            drive(1000);
            next[0].number = 0, next[0].rec.proto = ProtoTcp;
            drive_again();
            clock(100);
        }
        queue[0].push_back(next[0]);
        t.seen_valid = 0;
        before = cycle;
        while (queue[0].size()) clock(100);
        printf("an answer of 60 bytes takes %llu clocks\n", (unsigned long long)(cycle - before));
        CHECK(cycle - before < 2 * 60 + 6 * (60 / Width + 1) + 50, "too slow");
        gap[0] = gap[1] = 0;
    }
    void drive_again() {
        uint32_t words[sizeof t.seen / 4 + 1] = {};
        Bits b(words);
        Packet& p = next[0];
        p.rec.io(b, true);
        b.put(8, p.l4), b.put(8, p.l3), b.put(8, p.number), b.put(1, p.captured);
        memcpy(&t.seen, words, sizeof t.seen);
    }
};

int main() {
    Bench b;
    b.t.clk = 0, b.t.rst = 1, b.t.seen_valid = 0, b.t.add_ready = 0;
    memset(b.t.tbl_req.data(), 0, sizeof b.t.tbl_req);
    for (int i = 0; i < 4; i++) b.edge();
    b.t.rst = 0;
    for (int round = 0; round < 6; round++) {
        b.fill();
        b.run(60000, 2000, 70);
        b.run(20000, 300, 100);
        b.run(10000, 4, 30);
        for (int i = 0; i < 200; i++) b.reset();
    }
    b.speed();
    printf("%u frames, %u with ICRC, %u padded, %u long, %u refused, %u found no room, %u rows read\n", b.made, b.icrcs, b.padded, b.long_ones, b.refused, b.full, b.read_back);
    if (b.made < 500 || b.icrcs < 200 || b.padded < 100 || b.long_ones < 20 || b.refused < 100 || b.full < 1000 || b.read_back < 100)
        return printf("not exercised\n"), 1;
    return 0;
}
