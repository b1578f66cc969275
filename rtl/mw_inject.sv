// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Makes frames in answer to packets that pass, for both lanes, one at a time.
//
// Of a packet that an event asks it for it keeps what the path shows: the first bytes of the
// frame, and its record. A template (docs/tables.md) says which bytes the new frame has, as a
// list of steps: bytes of its own, bytes of the packet, a number that is worked out, a
// checksum. The list is gone through twice, a byte a clock: first for length and checksums,
// then for the frame itself, which goes to the store of the lane at whose end it shall leave.
//
// Nothing waits for this module: a packet that finds the queue of its lane full, or a template
// that is not for it, is counted and gets no answer.
module mw_inject
  import mw_pkg::*;
#(
    parameter int unsigned DATA_W = 512,  // 64 or 512
    parameter int unsigned QUEUE_LOG2 = 3  // 2**QUEUE_LOG2 packets of a lane wait, 1 to 8
) (
    input logic clk,
    input logic rst,
    // the beginnings of packets, by lane, as mw_path shows them
    input logic [1:0] seen_valid,
    input logic [1:0] seen_sof,
    input logic [1:0] seen_last,  // of the frame or of SeenBytes
    input logic [1:0][DATA_W-1:0] seen_data,
    input seen_t [1:0] seen,  // with seen_sof
    // to the store of each lane
    output logic [1:0] add_valid,
    input logic [1:0] add_ready,
    output logic add_sof,
    output logic add_last,
    output logic [$clog2(DATA_W/8)-1:0] add_len,  // with add_last: bytes of the beat less one
    output logic [DATA_W-1:0] add_data,
    output logic add_captured,  // with add_sof, as the next one
    output record_t add_rec,
    input tbl_req_t tbl_req,
    output logic tbl_ack,
    output logic [TblW-1:0] tbl_rdata,
    output logic [1:0] cnt_full,  // one pulse a packet that gets no answer: the queue was full,
    output logic [1:0] cnt_refused,  // or there is no template for it
    output logic busy
);
  if ((DATA_W != 64 && DATA_W != 512) || QUEUE_LOG2 < 1 || QUEUE_LOG2 > 8) begin : g_bad
    $fatal(1, "mw_inject: DATA_W must be 64 or 512, QUEUE_LOG2 between 1 and 8");
  end

  localparam int unsigned Bytes = DATA_W / 8;
  localparam int unsigned LaneW = $clog2(Bytes);
  localparam int unsigned HeadW = $clog2(SeenBytes) - LaneW;  // beats of a beginning, log2
  localparam int unsigned RowsLog2 = 9;
  localparam int unsigned PosW = 11;  // frames of up to 2047 bytes
  typedef logic [PosW-1:0] pos_t;
  typedef logic [RowsLog2-1:0] row_t;

  // A row of the table: a template, or 64 bytes for templates.
  localparam int unsigned Steps = 24;
  typedef logic [15:0] step_t;
  typedef struct packed {
    step_t [Steps-1:0] steps;     // 511:128
    logic [96:0]       reserved;
    row_t              bytes;     // 30:22  row in which its bytes begin
    logic [15:0]       sum;       // 21:6   of the pseudo header without addresses
    logic              back;      // 5      to where the packet came from
    logic [3:0]        protos;    // 4:1    bit n: for packets of protocol n
    logic              valid;
  } template_t;  // 512

  // Steps: what bits 1:0 say, and where these are 3, bits 4:2.
  localparam logic [1:0] StepEnd = 2'd0;
  localparam logic [1:0] StepBytes = 2'd1;  // 12:2 how many of its own
  localparam logic [1:0] StepSeen = 2'd2;  // 3:2 base, 8:4 how many less one, 15:9 offset
  localparam logic [2:0] WorkTags = 3'd0;  // from the 13th byte up to the IP header
  localparam logic [2:0] WorkIp = 3'd1;  // nothing: the IP header begins here
  localparam logic [2:0] WorkL4 = 3'd2;  // nothing: the transport header begins here
  localparam logic [2:0] WorkNext = 3'd3;  // sequence number that follows the segment
  localparam logic [2:0] WorkIpSum = 3'd4;
  localparam logic [2:0] WorkL4Sum = 3'd5;
  localparam logic [2:0] WorkIcrc = 3'd6;

  // ---- Packets that wait for their answer ----
  seen_t [1:0] waiting;
  logic [1:0] waits, done, empty;
  logic seek;  // a byte of a beginning is read
  logic [$clog2(SeenBytes)-1:0] from;  // this one
  logic [DATA_W-1:0] found[2];  // the beat in which it is, two clocks later
  for (genvar l = 0; l < 2; l++) begin : g_queue
    logic room, taken, take;
    logic [QUEUE_LOG2:0] free;
    logic [QUEUE_LOG2-1:0] place, at;  // where the next one is written, and the first one lies
    logic [HeadW-1:0] beat, index;
    seen_t info;
    assign take  = seen_valid[l] && (seen_sof[l] ? room : taken);
    assign index = seen_sof[l] ? '0 : beat;
    mw_fifo #(
        .WIDTH($bits(seen_t)),
        .DEPTH_LOG2(QUEUE_LOG2)
    ) i_waiting (
        .clk,
        .rst,
        .in_valid (take && seen_last[l]),
        .in_ready (room),
        .in_data  (seen_sof[l] ? seen[l] : info),
        .out_valid(waits[l]),
        .out_ready(done[l]),
        .out_data (waiting[l]),
        .free
    );
    mw_ram #(
        .WIDTH(DATA_W),
        .ROWS_LOG2(QUEUE_LOG2 + HeadW)
    ) i_heads (
        .clk,
        .wr_en  (take),
        .wr_row ({place, index}),
        .wr_data(seen_data[l]),
        .rd_en  (seek),
        .rd_row ({at, from[$clog2(SeenBytes)-1:LaneW]}),
        .rd_data(found[l])
    );
    assign empty[l] = free[QUEUE_LOG2];
    always_ff @(posedge clk) begin
      if (seen_valid[l]) begin
        if (seen_sof[l]) info <= seen[l];
        taken <= take && !seen_last[l];
        beat  <= index + 1'b1;
        if (take && seen_last[l]) place <= place + 1'b1;
      end
      if (done[l]) at <= at + 1'b1;
      cnt_full[l] <= seen_valid[l] && seen_sof[l] && !room;
      if (rst) begin
        taken <= 1'b0;
        place <= '0;
        at <= '0;
        cnt_full[l] <= 1'b0;
      end
    end
  end

  // ---- The table: read by the one who makes frames, else by the host ----
  typedef enum logic [1:0] {
    ForNone,
    ForTemplate,
    ForBytes,
    ForHost
  } reader_e;
  logic [TblW-1:0] read;
  reader_e reader, reader_q, reader_qq;
  row_t want_row;
  logic host_mine;
  row_t host_row;
  assign host_mine = tbl_req.valid && tbl_req.tbl == TblTemplate && !tbl_ack;
  assign host_row  = tbl_req.index[RowsLog2-1:0];
  mw_ram #(
      .WIDTH(TblW),
      .ROWS_LOG2(RowsLog2)
  ) i_table (
      .clk,
      .wr_en  (host_mine && tbl_req.write),
      .wr_row (host_row),
      .wr_data(tbl_req.wdata),
      .rd_en  (reader != ForNone),
      .rd_row (reader == ForHost ? host_row : want_row),
      .rd_data(read)
  );
  always_ff @(posedge clk) begin
    reader_qq <= reader_q;
    reader_q  <= reader;
    tbl_ack   <= host_mine && (tbl_req.write || reader_qq == ForHost);
    if (reader_qq == ForHost) tbl_rdata <= read;
    if (rst) begin
      reader_q  <= ForNone;
      reader_qq <= ForNone;
      tbl_ack   <= 1'b0;
    end
  end

  // ---- The frame that is being made ----
  typedef enum logic [2:0] {
    Idle,
    Fetch,
    Choose,
    Run,     // a byte a clock
    Settle   // what was begun comes to its end: a beat, or a pass
  } state_e;
  state_e state;
  logic turn;  // lane of the packet
  logic second;  // of the two passes
  seen_t job;
  template_t form;
  logic [31:0] next_seq;
  logic out_lane;
  assign job = waiting[turn];
  assign out_lane = job.rec.lane ^ form.back;

  // Where a byte comes from.
  typedef enum logic [2:0] {
    OfNone,    // zero
    OfTable,
    OfPacket,
    OfNext,
    OfIpSum,
    OfL4Sum,
    OfIcrc
  } source_e;
  typedef struct packed {
    source_e          source;
    pos_t             left;    // bytes of this step
    logic [6:0] from;          // in the packet's beginning
    logic             counts;  // in checksums
    logic             ending;  // zeros up to the shortest frame, and no more steps
  } task_t;
  // The next step is fetched and decoded while one is gone through.
  logic fetched, decoded, load, restart;
  logic [4:0] pc;
  step_t step;
  task_t next, now;
  logic next_ip, next_l4;  // that header begins here
  pos_t pos;  // bytes of the frame so far
  pos_t rest;  // in the second pass: bytes of the frame that are missing
  logic [5:0] pad;  // bytes that are missing to the shortest frame
  logic [1:0] nth;  // byte of this step, modulo 4
  logic in_ip, in_l4;
  pos_t ip_pos, l4_pos;  // from where these begin
  logic [RowsLog2+5:0] byte_at;  // in the table
  logic [TblW-1:0] bytes;  // the row of byte_at
  logic bytes_valid, bytes_asked;

  logic more, go, beat_full;
  assign more = state == Run && now.left != '0;
  assign go = more && (now.source != OfTable || bytes_valid);
  assign load = state == Run && decoded && !now.ending &&
      (now.left == '0 || (go && now.left == PosW'(1) && !next.ending));
  assign seek = go && now.source == OfPacket;
  assign from = now.from;
  assign beat_full = second && (pos[LaneW-1:0] == '1 || rest == PosW'(1));

  always_comb begin
    reader   = ForNone;
    want_row = byte_at[RowsLog2+5:6];
    if (state == Fetch && reader_q == ForNone && reader_qq == ForNone) begin
      reader   = ForTemplate;
      want_row = {2'b00, job.form[5:0], job.rec.is_ip6};
    end else if (more && now.source == OfTable && !bytes_valid && !bytes_asked) begin
      reader = ForBytes;
    end else if (host_mine && !tbl_req.write && reader_q != ForHost && reader_qq != ForHost) begin
      reader = ForHost;
    end
  end

  always_ff @(posedge clk) begin
    if (state == Run) begin
      if (!fetched || !decoded || load) begin
        step <= pc < 5'(Steps) ? form.steps[pc] : '0;
        pc <= pc + 1'b1;
        fetched <= 1'b1;
        decoded <= fetched;
      end
      if (fetched && (!decoded || load)) begin
        next <= '{source: OfNone, counts: 1'b1, default: '0};
        next_ip <= 1'b0;
        next_l4 <= 1'b0;
        unique case (step[1:0])
          StepEnd: begin
            next.counts <= 1'b0;
            next.ending <= 1'b1;
          end
          StepBytes: begin
            next.left   <= step[12:2];
            next.source <= OfTable;
          end
          StepSeen: begin
            automatic logic [6:0] base = '0;
            if (step[3:2] == 2'd1) base = 7'(job.l3_offset);
            if (step[3:2] == 2'd2) base = 7'(job.l4_offset);
            next.left   <= pos_t'(step[8:4]) + 1'b1;
            next.from   <= step[15:9] + base;
            next.source <= OfPacket;
          end
          default:
          unique case (step[4:2])
            WorkTags: begin
              next.left   <= pos_t'(job.l3_offset) - pos_t'(12);
              next.from   <= 7'd12;
              next.source <= OfPacket;
            end
            WorkIp:  next_ip <= 1'b1;
            WorkL4:  next_l4 <= 1'b1;
            WorkNext: begin
              next.left   <= PosW'(4);
              next.source <= OfNext;
            end
            WorkIpSum: begin
              next.left <= PosW'(2);
              if (second) next.source <= OfIpSum;
            end
            WorkL4Sum: begin
              next.left <= PosW'(2);
              if (second) next.source <= OfL4Sum;
            end
            WorkIcrc: begin
              next.left   <= PosW'(4);
              next.counts <= 1'b0;
              if (second) next.source <= OfIcrc;
            end
            default: ;
          endcase
        endcase
      end
    end
    if (restart) begin
      pc <= '0;
      fetched <= 1'b0;
      decoded <= 1'b0;
    end
  end

  logic settled;  // nothing is on its way to the checksums or to the beat
  always_ff @(posedge clk) begin
    cnt_refused <= '0;
    done <= '0;
    if (state != Idle || waits != '0) begin
      unique case (state)
        Idle:
        if (waits != '0 && done == '0) begin
          turn  <= waits[!turn] ? !turn : turn;
          state <= Fetch;
        end
        Fetch: begin
          next_seq <= job.rec.f0 + 32'(job.rec.payload_len);
          if (reader_qq == ForTemplate) begin
            form  <= read;
            state <= Choose;
          end
        end
        Choose: begin
          second   <= 1'b0;
          next_seq <= next_seq + 32'(2'(job.rec.tcp_flags[0]) + 2'(job.rec.tcp_flags[1]));
          state    <= Run;
          if (!form.valid || !form.protos[job.rec.proto] || job.form[7:6] != '0) begin
            cnt_refused[turn] <= 1'b1;
            done[turn] <= 1'b1;
            state <= Idle;
          end
        end
        Run: begin
          if (reader == ForBytes) bytes_asked <= 1'b1;
          if (reader_qq == ForBytes) begin
            bytes <= read;
            bytes_valid <= 1'b1;
            bytes_asked <= 1'b0;
          end
          if (go) begin
            now.left <= now.left - 1'b1;
            now.from <= now.from + 1'b1;
            pos <= pos + 1'b1;
            rest <= rest - 1'b1;
            if (pad != '0) pad <= pad - 1'b1;
            nth <= nth + 1'b1;
            ip_pos <= ip_pos + 1'b1;
            l4_pos <= l4_pos + 1'b1;
            if (now.source == OfTable) begin
              byte_at <= byte_at + 1'b1;
              if (byte_at[5:0] == '1) bytes_valid <= 1'b0;
            end
            if (beat_full) state <= Settle;
          end
          if (load) begin
            now <= next;
            if (next.ending) now.left <= pos_t'(pad);
            nth <= '0;
            if (next_ip) begin
              in_ip  <= 1'b1;
              ip_pos <= '0;
            end
            if (next_l4) begin
              in_l4  <= 1'b1;
              l4_pos <= '0;
            end
          end
          if (now.ending && now.left == '0) state <= Settle;
        end
        default:
        if (settled) begin
          state <= Run;
          if (!second) begin
            // Once more, with the sums.
            second <= 1'b1;
            rest   <= pos;
          end else if (rest == '0) begin
            done[turn] <= 1'b1;
            state <= Idle;
          end
        end
      endcase
    end
    if (restart) begin
      now <= '{source: OfNone, default: '0};
      pos <= '0;
      pad <= 6'(MinFrame);
      in_ip <= 1'b0;
      in_l4 <= 1'b0;
      byte_at <= {form.bytes, 6'd0};
      bytes_valid <= 1'b0;
    end
    if (rst) begin
      cnt_refused <= '0;
      done <= '0;
      state <= Idle;
      turn <= 1'b0;
      bytes_asked <= 1'b0;
    end
  end

  // ---- A byte's way: a, b: while the memory reads; c: its value; then a checksum or the beat.
  typedef struct packed {
    logic             second;
    logic [LaneW-1:0] lane;    // byte of the beat
    logic             sof;     // of the first beat
    logic             full;    // the beat's last one
    logic             last;    // the frame's
    logic             odd;
    logic             ip;      // counts in the checksum of IP, of the transport, and in the ICRC
    logic             l4;
    logic             icrc;
    logic [7:0]       ones;    // bits that count as ones in the ICRC
  } byte_t;
  logic a_valid, b_valid, c_valid, d_valid;
  byte_t a, b, c;
  source_e a_source, b_source;
  logic a_in_l4, a_in_ip, a_counts;
  pos_t a_ip_pos, a_l4_pos;
  logic [1:0] a_nth;
  logic [5:0] a_at;
  logic [LaneW-1:0] a_from, b_from;
  logic [63:0] b_bytes;
  logic [ 2:0] b_at;
  logic [7:0] b_worked, c_value;
  // Sums of 16-bit words, the carry of the last one still to be added (RFC 1071). A byte alone is no
  // word of ones, so that adding the last carry leaves none.
  logic [16:0] ip_sum, l4_sum;
  logic [31:0] crc;
  logic no_sum;  // the transport's sum is zero, which of UDP means none (RFC 768)

  function automatic logic [16:0] ones_add(input logic [16:0] sum, input logic [15:0] word);
    return 17'(sum[15:0]) + 17'(word) + 17'(sum[16]);
  endfunction
  // CRC-32 of IEEE 802.3, reflected, a byte on.
  function automatic logic [31:0] crc_on(input logic [31:0] crc_q, input logic [7:0] value);
    crc_on = crc_q ^ 32'(value);
    for (int i = 0; i < 8; i++) crc_on = (crc_on >> 1) ^ (crc_on[0] ? 32'hEDB8_8320 : '0);
  endfunction
  // After the 8 bytes of ones that stand for the local route header (InfiniBand annex A17).
  function automatic logic [31:0] crc_start();
    crc_start = '1;
    for (int i = 0; i < 8; i++) crc_start = crc_on(crc_start, 8'hff);
  endfunction
  localparam logic [31:0] CrcStart = crc_start();

  assign restart = state == Choose || (state == Settle && settled && !second);
  assign settled = !(a_valid || b_valid || c_valid || d_valid) && add_valid == '0;

  always_ff @(posedge clk) begin
    if (go) begin
      a <= '{
          second: second,
          lane: pos[LaneW-1:0],
          sof: pos < PosW'(Bytes),
          full: beat_full,
          last: rest == PosW'(1),
          default: '0
      };
      a_source <= now.source;
      a_in_ip <= in_ip;
      a_in_l4 <= in_l4;
      a_counts <= now.counts;
      a_ip_pos <= ip_pos;
      a_l4_pos <= l4_pos;
      a_nth <= nth;
      a_at <= byte_at[5:0];
      a_from <= from[LaneW-1:0];
    end
    if (a_valid) begin
      automatic logic is6 = job.rec.is_ip6;
      b <= a;
      b.odd <= a_ip_pos[0];
      b.ip <= a_counts && a_in_ip && !a_in_l4;
      b.l4 <= a_counts && (a_in_l4 || (a_in_ip && a_ip_pos >= (is6 ? PosW'(8) : PosW'(12))));
      b.icrc <= a_counts && a_in_ip;
      // What may change on the way counts as ones: traffic class, flow label, hop limit and
      // checksum of IP, the checksum of UDP, and FECN and BECN of the BTH.
      b.ones <= '0;
      if (a_in_l4 && a_l4_pos inside {6, 7, 12}) b.ones <= '1;
      if (!a_in_l4 && !is6 && a_ip_pos inside {1, 8, 10, 11}) b.ones <= '1;
      if (!a_in_l4 && is6 && a_ip_pos inside {1, 2, 3, 7}) b.ones <= '1;
      if (!a_in_l4 && is6 && a_ip_pos == '0) b.ones <= 8'h0f;
      b_source <= a_source;
      b_from <= a_from;
      b_bytes <= bytes[{a_at[5:3], 6'd0}+:64];
      b_at <= a_at[2:0];
      unique case (a_source)
        OfNext:  b_worked <= next_seq[{~a_nth, 3'b000}+:8];
        OfIpSum: b_worked <= ~(a_nth[0] ? ip_sum[7:0] : ip_sum[15:8]);
        OfL4Sum: b_worked <= no_sum ? '1 : ~(a_nth[0] ? l4_sum[7:0] : l4_sum[15:8]);
        OfIcrc:  b_worked <= ~crc[{a_nth, 3'b000}+:8];
        default: b_worked <= '0;
      endcase
    end
    if (b_valid) begin
      c <= b;
      unique case (b_source)
        OfPacket: c_value <= found[turn][{b_from, 3'b000}+:8];
        OfTable:  c_value <= b_bytes[{b_at, 3'b000}+:8];
        default:  c_value <= b_worked;
      endcase
    end
    if (add_valid != '0 && add_ready[out_lane]) add_valid <= '0;
    if (c_valid && c.second) begin
      automatic logic [DATA_W-1:0] beat = c.lane == '0 ? '0 : add_data;
      beat[{c.lane, 3'b000}+:8] = c_value;
      add_data <= beat;
      add_len  <= c.lane;
      add_last <= c.last;
      add_sof  <= c.sof;
      if (c.full) add_valid[out_lane] <= 1'b1;
    end
    if (state == Choose) begin
      ip_sum <= '0;
      l4_sum <= {1'b0, form.sum};
      crc <= CrcStart;
    end else if (c_valid || d_valid) begin
      automatic logic adds = c_valid && !c.second;
      automatic logic [15:0] word = c.odd ? 16'(c_value) : {c_value, 8'd0};
      ip_sum <= ones_add(ip_sum, adds && c.ip ? word : '0);
      l4_sum <= ones_add(l4_sum, adds && c.l4 ? word : '0);
      if (adds && c.icrc) crc <= crc_on(crc, c_value | c.ones);
    end
    if (state == Settle) no_sum <= l4_sum[15:0] == '1 && job.rec.proto != ProtoTcp;
    a_valid <= go && !rst;
    b_valid <= a_valid && !rst;
    c_valid <= b_valid && !rst;
    d_valid <= c_valid && !rst;
    if (rst) add_valid <= '0;
  end

  always_comb begin
    add_captured = job.captured;
    add_rec = job.rec;
    add_rec.lane = out_lane;
    add_rec.tap = 1'b1;
    add_rec.kind = KindInjected;
    add_rec.done = '0;
    add_rec.f2 = 16'(form.back);
  end

  assign busy = seen_valid != '0 || empty != '1 || host_mine || tbl_ack || state != Idle;
endmodule
