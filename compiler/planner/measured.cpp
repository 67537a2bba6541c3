#include "compiler/planner/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/strategy.h"

namespace attn::planner {
namespace {

using ir::Dim;

constexpr std::int64_t kFewRows = 16;

// Checks all rows of the table of this kind.
struct Measured {
  std::string_view kind;
  std::int64_t least_depth, most_depth;  // of Dqk and Dv
  std::int64_t most_rows, most_keys;
  std::int64_t most_heads;  // of all batches
  std::string_view features;
};
constexpr Measured kMeasured[] = {
#define ATTN_MEASURED(kind, least_depth, most_depth, most_rows, most_keys, most_heads, features) \
  {kind, least_depth, most_depth, most_rows, most_keys, most_heads, features},
#include "compiler/planner/measured.def"
};

bool has_layout(const ir::Attention& attention, ir::LayoutKind kind) {
  return std::ranges::any_of(attention.layouts,
                             [kind](const auto& each) { return each.second.kind == kind; });
}

bool masks_read_values(const ir::Attention& attention) {
  return std::ranges::any_of(ir::reachable(attention.dag, attention.masks), [&](ir::ExprId id) {
    if (attention.dag[id].is(ir::Op::param_)) return true;
    if (!attention.dag[id].is(ir::Op::load_)) return false;
    const std::string& tensor = attention.dag.symbol_of(id);
    return tensor != ir::kLengthsQ && tensor != ir::kLengthsKv;
  });
}

void compare_sizes(const ir::Attention& attention, const Measured& measured,
                   std::vector<std::string>& doubts) {
  const ir::Dims& d = attention.dims;
  const auto depths = std::array{d[Dim::Dqk], d[Dim::Dv]};
  const auto [least, most] = std::ranges::minmax(depths);
  if (least < measured.least_depth || most > measured.most_depth) {
    doubts.push_back(fmt::format("head dimensions from {} to {} were measured",
                                 measured.least_depth, measured.most_depth));
  }
  const auto most_of = [&](std::int64_t size, std::int64_t limit, const char* what) {
    if (size > 2 * limit) doubts.push_back(fmt::format("up to {} {} were measured", limit, what));
  };
  most_of(d[Dim::Sq], measured.most_rows, "rows");
  most_of(d[Dim::Skv], measured.most_keys, "keys");
  most_of(d[Dim::B] * d[Dim::Hq], measured.most_heads, "heads of all batches");
}

}  // namespace

std::string kind_of(const ir::Attention& attention, const target::Context& context) {
  const std::string kind = context.backward()                    ? "backward"
                           : attention.dims[Dim::Sq] <= kFewRows ? "few rows"
                                                                 : "forward";
  return kind + (attention.quantize ? " of 8 bits" : "");
}

std::vector<std::string_view> features_of(const ir::Attention& attention) {
  const bool scored = !attention.dag[attention.score].is(ir::Op::score_);
  const bool learned = std::ranges::any_of(attention.gradients, [&](const std::string& name) {
    return attention.find_tensor(name) != nullptr;
  });
  const std::pair<bool, std::string_view> all[] = {
      {has_layout(attention, ir::LayoutKind::paged), "keys in pages"},
      {has_layout(attention, ir::LayoutKind::thd), "packed sequences"},
      {attention.lengths_q || attention.lengths_kv, "lengths"},
      {!attention.masks.empty(), "masks"},
      {masks_read_values(attention), "masks that read values"},
      {scored, "scores that are modified"},
      {attention.sink.has_value(), "sinks"},
      {attention.is_random(), "random dropout"},
      {attention.dropout && attention.dropout->keep, "dropout of given elements"},
      {attention.is_sigmoid(), "sigmoid"},
      {attention.is_linear() || attention.quotient, "weights by an expression"},
      {attention.is_mxfp8(), "scales of blocks"},
      {attention.deterministic, "`deterministic`"},
      {learned, "gradients of learned tensors"},
  };
  std::vector<std::string_view> features;
  for (const auto& [has, what] : all) {
    if (has) features.push_back(what);
  }
  return features;
}

std::vector<std::string> doubts_of(const ir::Attention& attention, const target::Context& context) {
  std::vector<std::string> doubts;
  if (!context.gpu.measured) {
    doubts.push_back(fmt::format("measured on an H200, and scaled by this GPU's figures ({})",
                                 context.gpu.source));
    doubts.push_back(fmt::format(
        "kernels that were never measured on it are taken where others take {:.2f} times as long",
        engines::kUnmeasured));
  }
  const std::string kind = kind_of(attention, context);
  const auto* measured = std::ranges::find(kMeasured, kind, &Measured::kind);
  if (measured == std::end(kMeasured)) {
    doubts.push_back(fmt::format("nothing was measured of this kind: {}", kind));
  } else {
    compare_sizes(attention, *measured, doubts);
    for (const std::string_view feature : features_of(attention)) {
      const std::string all = fmt::format(", {}, ", measured->features);
      const bool known = all.find(fmt::format(", {}, ", feature)) != all.npos;
      if (!known) doubts.push_back(fmt::format("not measured with {}", feature));
    }
  }
  if (engines::assumes_lengths(attention)) {
    doubts.push_back(
        "lengths are taken to be half of what they may be, since the spec declares none");
  }
  if (masks_read_values(attention)) {
    doubts.push_back("what masks show is assumed where they read values that a call binds");
  }
  return doubts;
}

}  // namespace attn::planner
