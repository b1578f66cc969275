// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The traffic by which the compiler learns what a core mostly does (profile-guided
// optimisation): a bulk TCP transfer with its acknowledgements, both directions at once,
// small packets, RDMA WRITEs with theirs, and idle clocks; connections are followed, events
// looked up and every packet is recorded. Compiled once for each width: MW_NAME is the core's
// function table, MW_BYTES the bytes of a beat.
#include "core.h"
#include "mw_regs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" const mw_model MW_NAME;

namespace {

constexpr unsigned Bytes = MW_BYTES;
constexpr unsigned GapBytes = 24;  // preamble, FCS and gap of a frame (IEEE 802.3, 3.1 and 4.4.2)
constexpr unsigned RingBlocksLog2 = 4, BlockLog2 = 16, SnapshotBytes = 128;
// docs/tables.md: the table of selectors, and the bit of a row that enables it.
constexpr unsigned TblSelector = 5, SelectorEnable = 300;

using Frame = std::vector<std::uint8_t>;

class Core {
   public:
    Core() : core_(MW_NAME.create()) {
        set<std::uint8_t>("m_axis_tready", 3);
        for (const char* ready : {"m_axi_awready", "m_axi_wready", "irq_ready", "s_axil_bready", "s_axil_rready"})
            set<std::uint8_t>(ready, 1);
        for (unsigned rst : {1, 0}) {
            set<std::uint8_t>("rst", rst);
            for (int i = 0; i < 16; i++) clock();
        }
    }
    ~Core() { MW_NAME.destroy(core_); }
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    template <typename T>
    T& pin(const char* name) {
        void* at = MW_NAME.pin(core_, name);
        if (!at) {
            std::fprintf(stderr, "the core has no signal %s\n", name);
            std::exit(1);
        }
        return *static_cast<T*>(at);
    }
    template <typename T>
    void set(const char* name, T value) {
        pin<T>(name) = value;
    }

    void clock() {
        time_ns_ = cycle_++ * 3;
        bvalid_ = unanswered_ != 0;
        if (bvalid_ && bready_) unanswered_--;
        if (wvalid_ && wlast_) unanswered_++;
        address_taken_ = awvalid_ && awready_;
        data_taken_ = axil_wvalid_ && axil_wready_;
        MW_NAME.edge(core_);
        if (address_taken_) awvalid_ = 0;
        if (data_taken_) axil_wvalid_ = 0;
        if (irq_valid_) begin_write(MW_RING_CONSUMED, ++consumed_);
    }

    void write(unsigned address, unsigned value) {
        begin_write(address, value);
        while (awvalid_ || axil_wvalid_) clock();
        clock();
    }

    // Puts a beat on a port.
    void beat(unsigned port, const std::uint8_t* data, unsigned len, bool last) {
        std::memcpy(&data_ + port * Bytes, data, len);
        const std::uint64_t keep = len == 64 ? ~0ull : (1ull << len) - 1;
        std::memcpy(&keep_ + port * Bytes / 8, &keep, Bytes / 8);
        valid_ |= 1 << port;
        last_ |= last << port;
    }
    void no_beats() { valid_ = last_ = 0; }

   private:
    void begin_write(unsigned address, unsigned value) {
        awaddr_ = address;
        axil_wdata_ = value;
        wstrb_ = 15;
        awvalid_ = axil_wvalid_ = 1;
    }

    void* core_;
    std::uint64_t cycle_ = 0;
    unsigned unanswered_ = 0, consumed_ = 0;
    bool address_taken_ = false, data_taken_ = false;
    std::uint64_t& time_ns_ = pin<std::uint64_t>("time_ns");
    std::uint8_t& data_ = pin<std::uint8_t>("s_axis_tdata");
    std::uint8_t& keep_ = pin<std::uint8_t>("s_axis_tkeep");
    std::uint8_t& valid_ = pin<std::uint8_t>("s_axis_tvalid");
    std::uint8_t& last_ = pin<std::uint8_t>("s_axis_tlast");
    std::uint8_t& bvalid_ = pin<std::uint8_t>("m_axi_bvalid");
    std::uint8_t& bready_ = pin<std::uint8_t>("m_axi_bready");
    std::uint8_t& wvalid_ = pin<std::uint8_t>("m_axi_wvalid");
    std::uint8_t& wlast_ = pin<std::uint8_t>("m_axi_wlast");
    std::uint16_t& awaddr_ = pin<std::uint16_t>("s_axil_awaddr");
    std::uint8_t& awvalid_ = pin<std::uint8_t>("s_axil_awvalid");
    std::uint8_t& awready_ = pin<std::uint8_t>("s_axil_awready");
    std::uint32_t& axil_wdata_ = pin<std::uint32_t>("s_axil_wdata");
    std::uint8_t& wstrb_ = pin<std::uint8_t>("s_axil_wstrb");
    std::uint8_t& axil_wvalid_ = pin<std::uint8_t>("s_axil_wvalid");
    std::uint8_t& axil_wready_ = pin<std::uint8_t>("s_axil_wready");
    std::uint8_t& irq_valid_ = pin<std::uint8_t>("irq_valid");
};

void put16(Frame& f, unsigned at, unsigned value) {
    f[at] = value >> 8;
    f[at + 1] = value;
}

// An IPv4 packet of a protocol, from a port to a port; the card's `port` sends it.
Frame packet(unsigned port, unsigned len, std::uint8_t protocol, unsigned from, unsigned to) {
    Frame f(len);
    put16(f, 12, 0x0800);
    f[14] = 0x45;
    put16(f, 16, len - 14);
    f[22] = 64;
    f[23] = protocol;
    f[26] = f[30] = 10;
    f[29] = port ? 2 : 1;
    f[33] = port ? 1 : 2;
    put16(f, 34, from);
    put16(f, 36, to);
    return f;
}

// A packet of the TCP connection.
Frame tcp(unsigned port, unsigned len, std::uint32_t sequence, std::uint8_t flags) {
    Frame f = packet(port, len, 6, port ? 5001 : 40000, port ? 40000 : 5001);
    put16(f, 38, sequence >> 16);
    put16(f, 40, sequence);
    f[46] = 0x50;
    f[47] = flags;
    put16(f, 48, 0xffff);
    return f;
}

// A packet of the RDMA connection (IBTA 1.4, 9.2, and annex A17 for its encapsulation).
Frame rdma(unsigned port, unsigned len, std::uint32_t psn, std::uint8_t opcode) {
    Frame f = packet(port, len, 17, 49152, 4791);
    put16(f, 38, len - 34);
    f[42] = opcode;
    put16(f, 44, 0xffff);
    put16(f, 48, port ? 0x11 : 0x12);
    f[51] = psn >> 16;
    put16(f, 52, psn);
    return f;
}

class Traffic {
   public:
    explicit Traffic(Core& core) : core_(core) {}

    // The next frame of a flow; `sequence` is where the flow is, and moves on.
    using Next = Frame (*)(unsigned port, unsigned len, std::uint32_t& sequence);
    static Frame segment(unsigned port, unsigned len, std::uint32_t& sequence) {
        const std::uint32_t at = sequence;
        sequence += at ? len - 54 : 1;
        return tcp(port, len, at, at ? Ack : Syn);
    }
    static constexpr unsigned WritePackets = 4;
    static Frame write(unsigned port, unsigned len, std::uint32_t& sequence) {
        const std::uint32_t psn = sequence++, at = psn % WritePackets;
        return rdma(port, len, psn, at == 0 ? WriteFirst : at + 1 == WritePackets ? WriteLast : WriteMiddle);
    }
    // It acknowledges a whole WRITE.
    static Frame write_ack(unsigned port, unsigned len, std::uint32_t& sequence) {
        sequence += WritePackets;
        return rdma(port, len, sequence - 1, Acknowledge);
    }

    // `clocks` clocks in which a port sends frames of so many bytes, one every so many clocks
    // or, if that is fewer than it takes, back to back.
    struct Stream {
        unsigned len;
        unsigned every;
        Next frame = segment;
    };
    void run(unsigned clocks, std::array<Stream, 2> streams) {
        std::array<unsigned, 2> next{};
        for (unsigned clock = 0; clock < clocks; clock++) {
            core_.no_beats();
            for (unsigned port = 0; port < 2; port++) {
                Sender& s = senders_[port];
                if (s.at == s.frame.size() && streams[port].len && clock >= next[port]) {
                    s.frame = streams[port].frame(port, streams[port].len, s.sequence);
                    s.at = 0;
                    const unsigned beats = (streams[port].len + GapBytes + Bytes - 1) / Bytes;
                    next[port] = clock + std::max(streams[port].every, beats);
                }
                if (s.at < s.frame.size()) {
                    const unsigned len = std::min<unsigned>(Bytes, s.frame.size() - s.at);
                    core_.beat(port, &s.frame[s.at], len, s.at + len == s.frame.size());
                    s.at += len;
                }
            }
            core_.clock();
        }
    }

   private:
    static constexpr std::uint8_t Syn = 0x02, Ack = 0x10;
    static constexpr std::uint8_t WriteFirst = 6, WriteMiddle = 7, WriteLast = 8, Acknowledge = 17;
    struct Sender {
        Frame frame;
        std::size_t at = 0;
        std::uint32_t sequence = 0;
    };
    Core& core_;
    std::array<Sender, 2> senders_;
};

}  // namespace

int main() {
    Core core;
    core.write(MW_RING_BASE_LO, 1 << 20);
    core.write(MW_RING_BLOCKS_LOG2, RingBlocksLog2);
    core.write(MW_BLOCK_LOG2, BlockLog2);
    core.write(MW_SNAPSHOT_BYTES, SnapshotBytes);
    core.write(MW_FLUSH_NS, 1000000);
    core.write(MW_IRQ_ENABLE, 1);
    core.write(MW_KINDS_AB, 0x1ffff);
    core.write(MW_KINDS_BA, 0x1ffff);
    for (unsigned word = 0; word < 16; word++)
        core.write(MW_TABLE_WRITE + 4 * word, word == SelectorEnable / 32 ? 1u << SelectorEnable % 32 : 0);
    core.write(MW_TABLE_ADDRESS, TblSelector << 28);
    core.write(MW_TABLE_COMMAND, MW_TABLE_COMMAND_WRITE);
    core.write(MW_CONTROL, MW_CONTROL_CAPTURE | MW_CONTROL_TRACK);

    Traffic traffic(core);
    // Acknowledgements come every second segment.
    const unsigned segment = 1514 / Bytes + 1;
    traffic.run(60000, {{{1514, 0}, {66, 2 * segment}}});
    traffic.run(20000, {{{66, 2 * segment}, {1514, 0}}});
    traffic.run(20000, {{{1514, 0}, {1514, 0}}});
    traffic.run(5000, {{{64, 0}, {64, 0}}});
    traffic.run(10000, {{{0, 0}, {0, 0}}});

    // A kibibyte in each packet.
    const unsigned write = Traffic::WritePackets * (1086 / Bytes + 1);
    traffic.run(40000, {{{1086, 0, Traffic::write}, {62, write, Traffic::write_ack}}});
}
