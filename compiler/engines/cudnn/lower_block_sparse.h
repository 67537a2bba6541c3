// Block-sparse programs: masks as lists of pages (engines/shared/block_lists.h). Each tile of rows
// is a batch entry of one kernel, which reads in place the blocks of k and v that its page table
// lists.
//
//   pages.rows    i32 [lists, pages, Sq]: whether a row sees any of a page
//   pages.seen    i32 [lists, pages, tiles]: whether a tile does; one list per batch or head, or
//                 one for all
//   page_table    i32 [entries, longest]: the pages of an entry in ascending order, then arbitrary
//                 ones; page_table_k and page_table_v if k and v have different layouts
//   lengths_kv    i32 [entries]: how many columns its pages have
//   page_rows     i32 [entries, tile] and
//   page_columns  i32 [entries, longest * page]: indices of the rows and columns in the whole
//                 attention, if the score or a mask reads them
//   pages.lse     f32 [entries, Hq, tile]; likewise max and sum_exp
//   pages.q, pages.o: copies, if the tiles of all entries are not evenly spaced
//
// Kernels compute the lists before cuDNN runs, once if they depend on nothing that is bound.
#pragma once

#include <string>

#include "compiler/engines/shared/block_lists.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

struct Tiled {
  BlockLists lists;
  bool by_head = false;  // entry (b * Hq + h) * tiles + t; else b * tiles + t, with all heads
  bool copies_q = false, copies_o = false;
  // Names of page_rows and page_columns, unused in the spec; empty if nothing reads them.
  std::string rows, columns;
  ir::Attention attention;  // of the entries: B entries, Sq the tile, Skv the longest list
};

// Errors: unsupported for lengths, random dropout, thd and paged layouts, rows that are not
// contiguous multiples of 16 bytes, a sink if lists depend on the head, and too many entries or
// pages.
Result<Tiled> tiled(const ir::Attention& whole, const BlockLists& lists,
                    const target::Context& context);

// Bytes that kernels before and after cuDNN's read and write for copies and statistics.
double bytes_moved(const ir::Attention& whole, const Tiled& tiled);

// The program of `whole`; `program` is the lowered attention of the entries. Bound values are
// checked as for `whole`.
Result<plan::Program> of_block_lists(const ir::Attention& whole, const Tiled& tiled,
                                     plan::Program program);

}  // namespace attn::engines
