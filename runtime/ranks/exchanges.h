// What ranks send each other. It follows from the homes of rows and keys and from the parts, so
// plan files do not have it:
//
//   inputs     a rank fetches the rows and keys that its parts read and that are not at home, nor
//              have come in a stage before, from their homes
//   results    it gives what its parts made of rows (and, backward, of keys) to their homes
//
// Results of a row or key that several ranks computed with the same heads are parts of a sum, and
// travel as f32.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/ranks/program.h"

namespace attn::ranks {

// A tensor that is exchanged.
enum class Width : std::uint8_t { one, qk, v };
struct Carried {
  std::string_view name;
  Divided of = Divided::rows;
  Width width = Width::one;
};
const Carried* find_carried(std::string_view name);  // null if there is none
std::int64_t size_of(Width width, const Division& division);
// The heads that belong to these key heads; for rows, the query heads.
Interval heads_of(Divided of, Interval key_heads, const Division& division);

// What a rank gives of rows: o and statistics, with the maxima that sums of exponentials are
// relative to; as whole results.
std::vector<Payload> results_of(const Division& division);

// Bytes of its tensors together, without what aligns them.
std::int64_t bytes_of(const Message& message, const Division& division);

// Fills the exchanges of this rank, or of all of them. The rest of the division must be valid.
void add_exchanges(Division& division, std::optional<int> rank = {});

}  // namespace attn::ranks
