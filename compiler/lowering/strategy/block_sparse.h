// Programs for masks as lists of pages (passes/pages.h): each tile of rows is a batch entry of one
// kernel, which reads those blocks of k and v, where they lie, that a page table lists for it.
//
//   pages.rows    i32 [lists, pages, Sq]: whether a row sees some of a page
//   pages.seen    i32 [lists, pages, tiles]: whether a tile does; a list for each batch or head, or
//                 for all
//   page_table    i32 [entries, longest]: the pages of an entry in ascending order, then any
//                 others; page_table_k and page_table_v where k and v lie differently
//   lengths_kv    i32 [entries]: how many columns its pages have
//   page_rows     i32 [entries, tile] and
//   page_columns  i32 [entries, longest * page]: which rows and columns of the whole attention they
//                 are, where the score or a mask asks
//   pages.lse     f32 [entries, Hq, tile], and max and sum_exp likewise
//   pages.q, pages.o: copies, where tiles of all entries are not at one distance from each other
//
// All of it is made by kernels before cuDNN's, once when it depends on nothing that is bound.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/block_lists.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

struct Tiled {
  passes::BlockLists lists;
  bool by_head = false;  // entry (b * Hq + h) * tiles + t; without, b * tiles + t with all heads
  bool copies_q = false, copies_o = false;
  // What page_rows and page_columns are called, as no tensor or param of the spec is; empty where
  // nothing reads them.
  std::string rows, columns;
  ir::Attention attention;  // of the entries: B of them, Sq the tile, Skv of the longest list
};

// Errors: unsupported with lengths, random dropout, layouts thd and paged, elements of a row that
// are not adjacent or not in multiples of 16 bytes, a sink where lists depend on the head, and more
// entries or pages than can be numbered.
Result<Tiled> tiled(const ir::Attention& whole, const passes::BlockLists& lists,
                    const planning::Context& context);

// Bytes that kernels before and after cuDNN's read and write for copies and statistics.
double bytes_moved(const ir::Attention& whole, const Tiled& tiled);

// The program of `whole`; `program` is what lowering made of the entries' attention. What is bound
// is checked as for the whole.
Result<plan::Program> of_block_lists(const ir::Attention& whole, const Tiled& tiled,
                                     plan::Program program);

}  // namespace attn::lowering
