#include "compiler/driver/ranks/bound_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/tensors.h"

namespace attn::driver {
namespace {

using AllPlans = std::span<const Compiled>;
using Names = std::set<std::string, std::less<>>;

// What the plans of the direction bind.
Names bound_names(AllPlans plans, plan::Direction direction) {
  Names names;
  for (const Compiled& compiled : plans) {
    const plan::Program& program = compiled.plan.program;
    if (plan::direction_of(program) != direction) continue;
    for (const plan::TensorInfo& tensor : program.tensors) names.insert(tensor.name);
    for (const plan::ParamInfo& param : program.params) names.insert(param.name);
  }
  return names;
}

// Names by which plans know what callers bind as `name`.
Names names_in_plans(const ranks::Division& division, const std::string& name) {
  Names names = {name};
  for (const ranks::Program& program : division.ranks) {
    for (const ranks::Part& part : program.parts) {
      if (const auto found = part.renamed.find(name); found != part.renamed.end())
        names.insert(found->second);
    }
  }
  return names;
}

// What plans of a part bind besides tensors of the whole: sums' maxima, numbers of rows, and dv of
// a part that has no share of the gradients that are wanted.
Names other_names(const ranks::Division& division) {
  Names names = {"dv"};
  for (const plan::ParamInfo& param : division.params) names.insert(param.name);
  for (const ranks::Payload& result : ranks::results_of(division))
    names.merge(names_in_plans(division, result.name));
  for (const ranks::Program& program : division.ranks) {
    for (const ranks::Part& part : program.parts) {
      for (const auto& [name, of] : part.numbers) names.insert(name);
    }
  }
  return names;
}

Status match(AllPlans plans, plan::Direction direction, ranks::Division& division) {
  const bool forward = direction == plan::Direction::forward;
  std::vector<ranks::WholeTensor>& tensors = forward ? division.forward : division.backward;
  const Names wanted = bound_names(plans, direction);
  Names known = other_names(division);
  std::vector<ranks::WholeTensor> kept;
  for (const ranks::WholeTensor& tensor : tensors) {
    const Names names = names_in_plans(division, tensor.name);
    known.insert(names.begin(), names.end());
    const bool is_read =
        std::ranges::any_of(names, [&](const std::string& name) { return wanted.contains(name); });
    const bool clears = forward && division.clears_padding && tensor.name == ranks::kLengthsQ;
    const bool is_learned = ranks::find(tensors, "d_" + tensor.name) != nullptr;
    if (is_read || clears || is_learned || tensor.role != plan::TensorRole::captured)
      kept.push_back(tensor);
  }
  tensors = std::move(kept);
  const auto unbound =
      std::ranges::find_if(wanted, [&](const std::string& name) { return !known.contains(name); });
  if (unbound == wanted.end()) return {};
  return {ErrorCode::internal, fmt::format("nobody binds the plans' {}", *unbound)};
}

}  // namespace

Status match_plans(AllPlans plans, ranks::Division& division) {
  Names read;
  for (const plan::Direction each : {plan::Direction::forward, plan::Direction::backward}) {
    read.merge(bound_names(plans, each));
    ATTN_RETURN_IF_ERROR(match(plans, each, division));
  }
  std::erase_if(division.params,
                [&](const plan::ParamInfo& param) { return !read.contains(param.name); });
  for (ranks::Program& program : division.ranks) {
    for (ranks::Part& part : program.parts) {
      std::erase_if(part.renamed, [&](const auto& names) { return !read.contains(names.second); });
    }
  }
  return {};
}

}  // namespace attn::driver
