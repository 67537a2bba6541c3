// The scores of an attention as parts that fused kernels compute for themselves: where a mask shows
// blocks on the diagonal, classes of a modulus, or stretches of rows and columns, each part is a
// smaller attention with a simpler mask, or with none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/shared/view.h"
#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::engines {

// What it shows lies in the view, and no score is shown by two parts of a partition.
struct Part {
  View view;
  ir::Attention attention;  // of one class
};

struct Partition {
  std::string_view name;  // "chunks", "residues", "rows", "cells", "union", "shifted",
                          // "narrowed"
  std::vector<Part> parts;
  double predicted_ms = 0;
};

// "rows [64, 4096), columns [0, 64): everything", "rows c + 4 i, columns c + 4 j, of 4 classes:
// abs(..)", for people; the mask's q_idx and kv_idx are the part's own.
std::string to_text(const Part& part);

// The one that is predicted to take the least, of those with more than one part or class or a view
// that is smaller than the whole, whether or not a single kernel would take less; nothing when
// there is none. A forward's parts are merged by the log of their sums of exponentials; a
// backward's gradients are added, each part being given the statistics of the whole rows. Of each
// part those rewrites are made that the context has.
//
// Requires bound dimensions, no lengths, no random dropout. When the effort ends, the best of those
// found until then; of more than kMostPartitioned rows or columns none is looked for, which counts
// as an end too.
inline constexpr std::int64_t kMostPartitioned = std::int64_t{1} << 24;
std::optional<Partition> best_partition(const ir::Attention& attention,
                                        const target::Context& context);

// All rows and columns as classes of a modulus, the largest for which rows see columns of their own
// class alone; nothing when there is none. Requirements and effort as above.
std::optional<Part> residue_classes(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::engines
