// Masks by which a row sees only its own segment: the rows for which a captured tensor holds the
// same number, where these lie one behind the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/planning/context.h"

namespace attn::passes {

struct Segments {
  std::string tensor;        // [B, S], or [S] for all batches; monotone, i32 or i64
  bool by_batch = false;     // the former
  std::int64_t most = 1;     // segments in a batch, at most
  std::int64_t longest = 1;  // rows of a segment, at most
  // Each segment as a batch: B is so many times `most`, segment n of batch b being number b *
  // most + n, or an empty one; Sq and Skv are `longest`; without the mask that tells segments
  // apart.
  ir::Attention attention;
  // Where as many segments as there may be, each as long as it may be, fill a batch: then they are
  // blocks of `longest` rows, and this is the whole attention with a mask that says so.
  std::optional<ir::Attention> blocks{};
};

// Those of a mask T[b, q_idx] == T[b, kv_idx], or T without b, where
//   - T is declared monotone, and how many runs it has (its `runs` are these segments)
//   - score and the other masks, and what dropout keeps, are the same for indices that are both
//     shifted by the same, so that positions within a segment can stand for those within the batch
// Nothing for anything else, for open dimensions, with lengths and random dropout.
std::optional<Segments> segments(const ir::Attention& attention);

// Milliseconds where batches of so many rows have segments of equal length, as many as they may:
// a kernel that also looks at the rows which longer ones would have.
double predicted_ms(const Segments& segments, std::int64_t rows, const planning::Context& context);

}  // namespace attn::passes
