#include "tools/calibrated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "compiler/ast/parse.h"
#include "runtime/base/dtype.h"
#include "tools/execution.h"

namespace attn::tools {
namespace {

struct Scaled {
  std::string_view what;  // scale_WHAT, descale_WHAT, amax_WHAT
  DType type;             // that it is rounded to
};

std::vector<Scaled> scaled_by(const ir::Attention& attention, Needs needs) {
  std::vector<Scaled> all = {{"s", attention.dtype}, {"o", attention.dtype_of("o")}};
  if (needs != Needs::gradients) return all;
  all.push_back({"dp", attention.dtype_of("do")});
  for (const std::string_view name : {"dq", "dk", "dv"}) {
    all.push_back({name, attention.dtype_of(name)});
  }
  return all;
}

void set(const std::string& name, double value, Inputs& inputs) {
  const auto found = inputs.values.tensors.find(name);
  if (found == inputs.values.tensors.end()) return;
  found->second.values = {value};
  const auto origin =
      std::ranges::find(inputs.origins, name, [](const auto& of) { return of.first; });
  if (origin != inputs.origins.end()) origin->second = fmt::format("{}", value);
}

Result<Outputs> magnitudes(ir::Attention attention, Needs needs, const Inputs& inputs) {
  attention.wants_amax_s = attention.wants_amax_o = true;
  reference::Options how;
  how.unrounded = true;
  if (needs != Needs::gradients) return run_reference(attention, inputs.values, how);
  ATTN_ASSIGN(ReferenceGradients found,
              run_reference_gradients(attention, inputs.values, true, how));
  return std::move(found.outputs);
}

}  // namespace

std::set<std::string> written_scales(const support::Source& source) {
  std::set<std::string> names;
  diag::Sink sink(source);
  const std::optional<ast::Spec> spec = ast::parse(source, sink);
  if (!spec) return names;  // not reached: the source parsed before
  for (const ast::Clause& clause : spec->clauses) {
    const auto* quantize = std::get_if<ast::QuantizeClause>(&clause.body);
    if (quantize == nullptr) continue;
    for (const ast::QuantizeEntry& entry : quantize->entries) {
      if (entry.fallback) names.insert(entry.name.text);
    }
  }
  return names;
}

Status calibrate(const ir::Attention& attention, const std::set<std::string>& given, Needs needs,
                 Inputs& inputs) {
  if (!attention.quantize) return {};
  std::vector<Scaled> open = scaled_by(attention, needs);
  std::erase_if(open, [&](const Scaled& each) {
    const std::string scale = fmt::format("scale_{}", each.what);
    return !inputs.values.tensors.contains(scale) || given.contains(scale) ||
           given.contains("de" + scale);
  });
  if (open.empty()) return {};
  ATTN_ASSIGN(const Outputs found, magnitudes(attention, needs, inputs));
  for (const Scaled& each : open) {
    // What is rounded of the weights is exp(s - m), which reaches 1 in every row.
    const double largest =
        each.what == "s" ? 1 : found.at(fmt::format("amax_{}", each.what)).values.at(0);
    if (!(largest > 0) || !std::isfinite(largest)) continue;
    const double scale = std::exp2(std::floor(std::log2(max_finite(each.type) / largest)));
    const std::string name = fmt::format("scale_{}", each.what);
    set(name, scale, inputs);
    set("de" + name, 1 / scale, inputs);
  }
  return {};
}

}  // namespace attn::tools
