#include "compiler/engines/native/checks.h"

#include <fmt/format.h>

#include <limits>

#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/random_dropout.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Elements of q, k and v that are 16 bytes.
std::int64_t vector_of(const ir::Attention& attention) {
  return 16 / static_cast<std::int64_t>(size_of(attention.dtype));
}

constexpr std::int64_t kDepthMultiple = 8;  // that a head dimension is a multiple of
constexpr std::int64_t kMostLength = std::int64_t{1} << 24;  // rows and keys
constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();

// D, where both head dimensions are one.
std::string name_of_depth(const ir::Attention& attention, Dim dim) {
  const bool is_one = attention.dims[Dim::Dqk] == attention.dims[Dim::Dv];
  return is_one ? "D" : std::string(to_string(dim));
}

}  // namespace

Status check_layout(const ir::Attention& attention, const std::string& name) {
  if (name == "o") return {};
  const Dims4 dims = stored_dims(attention, name), strides = stored_strides(attention, name);
  if (attention.cache && name != "q") return {};  // check_cache
  const bool thd = layout_of(attention, name).kind == ir::LayoutKind::thd;
  bool fits = strides[3] == 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const bool moves = dims[i] > 1 || (thd && i == 2);  // sequences begin at any row
    fits &= !moves || (strides[i] > 0 && strides[i] % vector_of(attention) == 0);
  }
  if (fits) return {};
  if (repeats(layout_of(attention, name))) {
    return unsupported(attention.pos, fmt::format("a stride of `{}` is 0", name),
                       "it is not known that the tensor memory accelerator takes that");
  }
  return unsupported(
      attention.pos,
      fmt::format("the rows of `{}` are not contiguous, or not at multiples of 16 bytes", name),
      "the tensor memory accelerator needs both");
}

Status check_most_depth(const ir::Attention& attention, ir::Dim dim, std::int64_t most,
                        std::string_view direction) {
  const std::int64_t depth = attention.dims[dim];
  if (depth <= most) return {};
  return unsupported(attention.pos,
                     fmt::format("attnc's own engine has no {} above {} {} (this is {})", direction,
                                 name_of_depth(attention, dim), most, depth));
}

Status check_depth(const ir::Attention& attention, ir::Dim dim, std::int64_t most,
                   std::string_view direction) {
  ATTN_RETURN_IF_ERROR(check_most_depth(attention, dim, most, direction));
  const std::int64_t depth = attention.dims[dim];
  if (depth % kDepthMultiple == 0) return {};
  const std::int64_t below = depth / kDepthMultiple * kDepthMultiple,
                     above = below + kDepthMultiple;
  const char* const works = below == 0     ? "{1} works"
                            : above > most ? "{0} works"
                                           : "{0} and {1} work";
  return unsupported(attention.pos,
                     fmt::format("attnc's own engine takes {} in multiples of {} (this is {})",
                                 name_of_depth(attention, dim), kDepthMultiple, depth),
                     fmt::format(fmt::runtime(works), below, above));
}

Status check_clauses(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  if (d[Dim::Skv] == 0 || d[Dim::Sq] == 0) {
    return unsupported(attention.pos, "without rows or keys there is nothing to compute");
  }
  if (d[Dim::Skv] > kMostLength || d[Dim::Sq] > kMostLength) {
    return unsupported(attention.pos,
                       fmt::format("attnc's kernel takes up to {} rows and keys", kMostLength));
  }
  if (d[Dim::B] > kMostRows / (d[Dim::Hq] * d[Dim::Sq])) {
    return unsupported(attention.pos,
                       fmt::format("attnc's kernel takes up to {} rows of all heads", kMostRows));
  }
  for (Status (*const check)(const ir::Attention&) :
       {&ir::check_random_dropout, &ir::check_draws_by_32}) {
    const Status drawn = check(attention);
    if (drawn.ok()) continue;
    return unsupported(attention.dropout->pos, drawn.error().message, drawn.error().notes.front());
  }
  return {};
}

}  // namespace attn::engines::native
