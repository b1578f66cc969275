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

  // Steps: what bits 1:0 say, and of StepWork bits 4:2.
  localparam logic [1:0] StepEnd = 2'd0;
  localparam logic [1:0] StepBytes = 2'd1;  // 12:2 how many of its own
  localparam logic [1:0] StepSeen = 2'd2;  // 3:2 base, 8:4 how many less one, 15:9 offset
  localparam logic [1:0] StepWork = 2'd3;
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
  logic [1:0][QUEUE_LOG2-1:0] at;  // place of the first
  logic [DATA_W-1:0] heads[2][1 << (QUEUE_LOG2 + HeadW)];
  for (genvar l = 0; l < 2; l++) begin : g_queue
    logic room, taken, take;
    logic [  QUEUE_LOG2:0] free;
    logic [QUEUE_LOG2-1:0] place;
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
    assign empty[l] = free[QUEUE_LOG2];
    always_ff @(posedge clk) begin
      if (seen_valid[l]) begin
        if (take) heads[l][{place, index}] <= seen_data[l];
        if (seen_sof[l]) info <= seen[l];
        taken <= take && !seen_last[l];
        beat  <= index + 1'b1;
        if (take && seen_last[l]) place <= place + 1'b1;
      end
      if (done[l]) at[l] <= at[l] + 1'b1;
      cnt_full[l] <= seen_valid[l] && seen_sof[l] && !room;
      if (rst) begin
        taken <= 1'b0;
        place <= '0;
        at[l] <= '0;
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
  typedef enum logic [1:0] {
    Idle,
    Fetch,
    Choose,
    Run
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

  logic [4:0] pc;
  pos_t count, pos, total;  // bytes of this step, of the frame so far, and of the whole
  logic in_ip, in_l4;
  pos_t ip_at, l4_at;
  logic [RowsLog2+5:0] byte_at;  // in the table
  logic [TblW-1:0] bytes;
  row_t bytes_row, asked_row;
  logic bytes_valid, bytes_asked;

  logic [15:0] ip_sum, l4_sum;
  logic [31:0] crc;

  // A byte on its way to the checksums or to the beat.
  logic b_valid, b_last, b_odd, b_ip, b_l4, b_icrc;
  logic [7:0] b, b_ones;

  function automatic logic [15:0] ones_add(input logic [15:0] a, input logic [15:0] c);
    logic [16:0] sum;
    sum = 17'(a) + 17'(c);
    return sum[15:0] + 16'(sum[16]);
  endfunction
  // CRC-32 of IEEE 802.3, reflected, a byte on.
  function automatic logic [31:0] crc_on(input logic [31:0] crc_q, input logic [7:0] value);
    logic [31:0] c;
    c = crc_q ^ 32'(value);
    for (int i = 0; i < 8; i++) c = (c >> 1) ^ (c[0] ? 32'hEDB8_8320 : '0);
    return c;
  endfunction
  // After the 8 bytes of ones that stand for the local route header (InfiniBand annex A17).
  function automatic logic [31:0] crc_start();
    logic [31:0] c;
    c = '1;
    for (int i = 0; i < 8; i++) c = crc_on(c, 8'hff);
    return c;
  endfunction
  localparam logic [31:0] CrcStart = crc_start();

  logic stalled;  // a beat waits to be taken
  assign stalled = add_valid != '0 && !add_ready[out_lane];

  always_comb begin
    reader   = ForNone;
    want_row = byte_at[RowsLog2+5:6];
    if (state == Fetch && reader_q == ForNone && reader_qq == ForNone) begin
      reader   = ForTemplate;
      want_row = {2'b00, job.form[5:0], job.rec.is_ip6};
    end else if (state == Run && !bytes_asked && !(bytes_valid && bytes_row == want_row)) begin
      reader = ForBytes;
    end else if (host_mine && !tbl_req.write && reader_q != ForHost && reader_qq != ForHost) begin
      reader = ForHost;
    end
  end

  always_ff @(posedge clk) begin
    cnt_refused <= '0;
    done <= '0;
    if (state != Idle || waits != '0 || add_valid != '0) begin
      unique case (state)
        Idle:
        if (waits != '0 && done == '0) begin
          turn  <= waits[!turn] ? !turn : turn;
          state <= Fetch;
        end
        Fetch:
        if (reader_qq == ForTemplate) begin
          form  <= read;
          state <= Choose;
        end
        Choose: begin
          state <= Run;
          second <= 1'b0;
          next_seq <= job.rec.f0 + 32'(job.rec.payload_len) + 32'(job.rec.tcp_flags[0]) +
              32'(job.rec.tcp_flags[1]);
          ip_sum <= '0;
          l4_sum <= form.sum;
          crc <= CrcStart;
          pc <= '0;
          count <= '0;
          pos <= '0;
          in_ip <= 1'b0;
          in_l4 <= 1'b0;
          byte_at <= {form.bytes, 6'd0};
          if (!form.valid || !form.protos[job.rec.proto] || job.form[7:6] != '0) begin
            cnt_refused[turn] <= 1'b1;
            done[turn] <= 1'b1;
            state <= Idle;
          end
        end
        Run: begin
          // Its own bytes.
          if (reader == ForBytes) {bytes_asked, asked_row} <= {1'b1, want_row};
          if (reader_qq == ForBytes) begin
            bytes <= read;
            bytes_row <= asked_row;
            bytes_valid <= 1'b1;
            bytes_asked <= 1'b0;
          end

          // What became of the byte before: checksums in the first pass, the frame in the second.
          if (!stalled) begin
            if (b_valid && !second) begin
              if (b_ip) ip_sum <= ones_add(ip_sum, b_odd ? 16'(b) : {b, 8'd0});
              if (b_l4) l4_sum <= ones_add(l4_sum, b_odd ? 16'(b) : {b, 8'd0});
              if (b_icrc) crc <= crc_on(crc, b | b_ones);
            end
            add_valid <= '0;
            if (b_valid && second) begin
              automatic logic [ LaneW-1:0] lane = LaneW'(pos - 1'b1);
              automatic logic [DATA_W-1:0] next = lane == '0 ? '0 : add_data;
              next[{lane, 3'b000}+:8] = b;
              add_data <= next;
              add_len  <= lane;
              add_last <= b_last;
              add_sof  <= pos <= PosW'(Bytes);
              if (b_last || lane == '1) add_valid[out_lane] <= 1'b1;
            end
          end

          // The next byte.
          if (!stalled) begin
            automatic step_t step = pc < 5'(Steps) ? form.steps[pc] : '0;
            automatic pos_t amount = '0;
            automatic logic [6:0] from = '0;  // in the packet's beginning
            automatic logic have = 1'b1;
            automatic logic [7:0] value = '0;
            automatic logic seen_byte = 1'b0;
            automatic logic counts = 1'b1;
            automatic logic [31:0] icrc = ~crc;
            automatic pos_t in_header = pos - ip_at;
            automatic pos_t in_transport = pos - l4_at;
            unique case (step[1:0])
              StepEnd: begin
                amount = pos < PosW'(MinFrame) ? PosW'(1) : '0;  // zeros up to the shortest frame
                counts = 1'b0;
              end
              StepBytes: begin
                amount = step[12:2];
                have   = bytes_valid && bytes_row == want_row;
                value  = bytes[{byte_at[5:0], 3'b000}+:8];
              end
              StepSeen: begin
                amount = pos_t'(step[8:4]) + 1'b1;
                from   = step[15:9] + 7'(count);
                if (step[3:2] == 2'd1) from = from + 7'(job.l3_offset);
                if (step[3:2] == 2'd2) from = from + 7'(job.l4_offset);
                seen_byte = 1'b1;
              end
              default:
              unique case (step[4:2])
                WorkTags: begin
                  amount = pos_t'(job.l3_offset) - pos_t'(12);
                  from = 7'd12 + 7'(count);
                  seen_byte = 1'b1;
                end
                WorkNext: begin
                  amount = PosW'(4);
                  value  = next_seq[{~count[1:0], 3'b000}+:8];
                end
                WorkIpSum: begin
                  amount = PosW'(2);
                  if (second) value = count[0] ? ~ip_sum[7:0] : ~ip_sum[15:8];
                end
                WorkL4Sum: begin
                  amount = PosW'(2);
                  // Of UDP a sum of zero means none (RFC 768).
                  if (second && (l4_sum != '1 || job.rec.proto == ProtoTcp))
                    value = count[0] ? ~l4_sum[7:0] : ~l4_sum[15:8];
                  else if (second) value = '1;
                end
                WorkIcrc: begin
                  amount = PosW'(4);
                  if (second) value = icrc[{count[1:0], 3'b000}+:8];
                  counts = 1'b0;
                end
                default: ;
              endcase
            endcase
            if (seen_byte) begin
              automatic logic [DATA_W-1:0] head = heads[turn][{at[turn], from[6:LaneW]}];
              value = head[{from[LaneW-1:0], 3'b000}+:8];
            end

            b_valid <= amount != '0 && have;
            b <= value;
            b_last <= pos + 1'b1 == total;
            b_odd <= in_header[0];
            b_ip <= in_ip && !in_l4 && counts;
            b_l4 <= counts && (in_l4 || (in_ip && (job.rec.is_ip6 ? in_header >= PosW'(8) :
                in_header >= PosW'(12))));
            b_icrc <= in_ip && counts;
            // What may change on the way counts as ones: traffic class, flow label, hop limit and
            // checksum of IP, the checksum of UDP, and FECN and BECN of the BTH.
            b_ones <= '0;
            if (in_l4 && in_transport inside {6, 7, 12}) b_ones <= '1;
            if (!in_l4 && !job.rec.is_ip6 && in_header inside {1, 8, 10, 11}) b_ones <= '1;
            if (!in_l4 && job.rec.is_ip6 && in_header inside {1, 2, 3, 7}) b_ones <= '1;
            if (!in_l4 && job.rec.is_ip6 && in_header == '0) b_ones <= 8'h0f;

            if (have) begin
              if (amount != '0) pos <= pos + 1'b1;
              if (step[1:0] == StepBytes && amount != '0) byte_at <= byte_at + 1'b1;
              if (step[1:0] == StepEnd) begin
                if (amount == '0 && !second) begin
                  // Once more, with the sums of what came last.
                  second <= 1'b1;
                  total <= pos;
                  pc <= '0;
                  pos <= '0;
                  in_ip <= 1'b0;
                  in_l4 <= 1'b0;
                  byte_at <= {form.bytes, 6'd0};
                end
              end else if (count + 1'b1 >= amount) begin
                pc <= pc + 1'b1;
                count <= '0;
                if (step[1:0] == StepWork && step[4:2] == WorkIp) {in_ip, ip_at} <= {1'b1, pos};
                if (step[1:0] == StepWork && step[4:2] == WorkL4) {in_l4, l4_at} <= {1'b1, pos};
              end else begin
                count <= count + 1'b1;
              end
            end
          end

          if (add_valid != '0 && add_last && !stalled) begin
            done[turn] <= 1'b1;
            state <= Idle;
          end
        end
      endcase
    end
    if (state != Run) begin
      b_valid <= 1'b0;
      bytes_valid <= 1'b0;
      bytes_asked <= 1'b0;
    end
    if (rst) begin
      cnt_refused <= '0;
      done <= '0;
      state <= Idle;
      turn <= 1'b0;
      add_valid <= '0;
      b_valid <= 1'b0;
    end
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
