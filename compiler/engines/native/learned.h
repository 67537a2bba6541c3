// How the backward kernel sums gradients of learned tensors (attn/learned_parts.cuh).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen/repetition.h"
#include "compiler/gradient/differentiate.h"

namespace attn::engines::native {

// The same as in attn/learned_parts.cuh.
enum class Reach : std::uint8_t { heads, row, column, diagonal, unknown, shared, own };
std::string_view name_of(Reach reach);
// Operations for each score, to sum what it adds.
double operations_of(Reach reach);

// A place where a score reads a learned tensor, or several that differ in constants alone, which a
// loop takes in turns.
struct LearnedPart {
  gradient::Gather gather;        // of the first turn
  codegen::Family loads, locals;  // of each
  Reach reach = Reach::unknown;
  // Its local derivative is computed with the score, and kept. Otherwise it follows, when dS is
  // known, from indices and inputs.
  bool held = false;
  bool finite = false;   // in the second case
  bool is_long = false;  // likewise: it takes many operations
  int bits = 0;          // these and below as in attn/learned_parts.cuh
  std::int64_t row = 0, column = 0;
  std::int64_t place = 0, elements = 0;
  std::int64_t sums = 0;  // first word of the tensor's sums; sums of diagonals are added to them

  std::int64_t turns() const { return static_cast<std::int64_t>(loads.size()); }
};

// The parts of a tensor are adjacent; members after `column` are not set. A part has the reach
// `heads` if its indices depend on batch and head alone: either all parts of a tensor have this
// reach, or none has. A part that is held has a single turn.
std::vector<LearnedPart> learned_parts(const gradient::Derivatives& derivatives);

// The derivative of the score by the scaled product, if it is a constant but 0.
std::optional<double> constant_slope(const gradient::Derivatives& derivatives);

std::int64_t elements_of(const ir::Attention& attention, const std::string& tensor);

}  // namespace attn::engines::native
