// Masks by which a row sees only its own segment: adjacent rows for which a captured tensor holds
// the same number (packed sequences).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::engines {

struct Segments {
  std::string tensor;        // [B, S], or [S] for all batches; monotone, i32 or i64
  bool by_batch = false;     // [B, S]
  std::int64_t most = 1;     // most segments in a batch
  std::int64_t longest = 1;  // most rows of a segment
  // Each segment as a batch: B times `most`, where segment n of batch b is number b * most + n
  // (empty if there is none); Sq and Skv are `longest`; without the mask that separates segments.
  ir::Attention attention;
  // Set if `most` segments of `longest` rows fill a batch exactly. Then they are blocks of
  // `longest` rows, and this is the whole attention with a mask of these blocks.
  std::optional<ir::Attention> blocks{};
};

// The segments of a mask T[b, q_idx] == T[b, kv_idx], or T without b, if
//   - T is declared monotone, with a number of `runs`, which are the segments
//   - score, the other masks and what dropout keeps do not change if both indices are shifted
//     by the same amount, so that positions within a segment can replace those within the batch
// nullopt otherwise, for open dimensions, and with lengths or random dropout.
std::optional<Segments> segments(const ir::Attention& attention);

// Predicted milliseconds for batches of `rows` rows with `most` segments of equal length, in a
// kernel that also visits the rows that longer segments would have.
double predicted_ms(const Segments& segments, std::int64_t rows, const target::Context& context);

}  // namespace attn::engines
