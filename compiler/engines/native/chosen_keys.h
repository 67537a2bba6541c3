// Attention over gathered keys: each row of the attention is a batch of the kernel, whose keys are
// those of its list. A block of threads copies them row by row, as it does keys in pages of one row
// (attn/chosen_rows.cuh): an element of the list is a key of the cache, which is in pages, or not.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/engines/native/maps.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

struct ChosenKeys {
  std::string keys;                  // the captured tensor with the lists
  std::int64_t rows = 1;             // of a batch of the attention
  std::int64_t batches = 1;          // of the attention
  std::int64_t cache = 0;            // keys of a batch
  std::int64_t page = 0, pages = 0;  // rows of a page, and pages of a batch; 0: in no pages
  std::string table{};               // of pages, if there is one
  std::string lengths{};             // of the cache, as the kernel's attention calls them, if any
  PoolStrides k{}, v{};              // elements; `page` is that of batches where there are no pages
  // Tensors that the kernel's attention calls otherwise, by its names.
  std::map<std::string, std::string, std::less<>> names{};
};

// Errors: unsupported for a GPU without warp group products, packed sequences, lengths of rows,
// epilogues, sums along keys, and keys that are in pages while values are not.
Status check_chosen(const ir::Attention& attention, bool of_warps);

// What the kernel computes, for the attention, and where its keys are. Lengths of keys are the
// counts of the lists; the layouts of q and o are their strides in the attention.
struct ChosenForm {
  ir::Attention attention;
  ChosenKeys chosen;
};
ChosenForm form_of_chosen(const ir::Attention& whole);

// Queries as the whole attention has them: batches and rows.
ir::Attention with_rows_of_whole(ir::Attention attention, const ChosenKeys& chosen);

// The names of the kernel's attention, as those of the whole.
void rename_tensors(const ChosenKeys& chosen, plan::KernelStep& step);

// The check of bound lists, beside that of other indexes.
void check_positions(const ir::Attention& whole, plan::Program& program);

}  // namespace attn::engines::native
