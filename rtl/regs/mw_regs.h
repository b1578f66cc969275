// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Generated from rtl/regs/midwire.rdl by tools/regs.py; do not edit.
//
// Offsets and fields of the card's registers in BAR 0.
#pragma once

#define MW_ID 0x0u
#define MW_VERSION 0x4u
#define MW_MAP_HASH 0x8u
#define MW_DATA_WIDTH 0xcu
#define MW_CLOCK_PS 0x10u
#define MW_CONNS_LOG2 0x14u
#define MW_FLOW_ROWS_LOG2 0x18u
#define MW_SLOTS_LOG2 0x1cu
#define MW_EXACT_ROWS_LOG2 0x20u
#define MW_PAGE_ROWS_LOG2 0x24u
#define MW_WAYS 0x28u
#define MW_SELECTORS 0x2cu
#define MW_ACTIONS 0x30u
#define MW_DELAY_SLOTS 0x34u
#define MW_MAX_FRAME 0x38u
#define MW_RULES 0x3cu
#define MW_CONTROL 0x80u
#define MW_CONTROL_CAPTURE 0x1u
#define MW_CONTROL_CLEAR 0x2u
#define MW_CONTROL_LATCH 0x4u
#define MW_CONTROL_TRACK 0x8u
#define MW_STATUS 0x84u
#define MW_STATUS_CAPTURE_ACTIVE 0x1u
#define MW_STATUS_CLEAR_BUSY 0x2u
#define MW_STATUS_TABLE_BUSY 0x4u
#define MW_STATUS_DMA_ERROR 0x8u
#define MW_IRQ_ENABLE 0x88u
#define MW_NOW 0x90u
#define MW_RING_BASE_LO 0xa0u
#define MW_RING_BASE_HI 0xa4u
#define MW_RING_BLOCKS_LOG2 0xa8u
#define MW_BLOCK_LOG2 0xacu
#define MW_RING_CONSUMED 0xb0u
#define MW_RING_PRODUCED 0xb4u
#define MW_SNAPSHOT_BYTES 0xb8u
#define MW_FLUSH_NS 0xbcu
#define MW_REORDER_TIMEOUT_NS 0xc0u
#define MW_KINDS_AB 0xd0u
#define MW_KINDS_BA 0xd4u
#define MW_CONNECTIONS 0xd8u
#define MW_CONNECTIONS_LOST 0xdcu
#define MW_TABLE_ADDRESS 0xf0u
#define MW_TABLE_ADDRESS_INDEX 0xffffffu
#define MW_TABLE_ADDRESS_LANE 0x8000000u
#define MW_TABLE_ADDRESS_TBL 0xf0000000u
#define MW_TABLE_COMMAND 0xf4u
#define MW_TABLE_COMMAND_READ 0x1u
#define MW_TABLE_COMMAND_WRITE 0x2u
#define MW_TABLE_WRITE 0x100u
#define MW_TABLE_READ 0x140u
