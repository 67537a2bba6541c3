#include "compiler/ir/key_sums.h"

#include <algorithm>

namespace attn::ir {
namespace {

bool is_listed(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a gradient goes through the sum.
bool is_differentiated(const Attention& attention, const KeySum& sum) {
  const std::vector<std::string> learned = summed_with_gradients(attention);
  return std::ranges::any_of(
      learned, [&](const std::string& name) { return reads(attention.dag, sum.value, name); });
}

}  // namespace

bool has_gradient(const Attention& attention, const CapturedTensor& tensor) {
  if (!tensor.learned) return false;
  return attention.gradients.empty() || is_listed(attention.gradients, tensor.name);
}

bool reads(const Dag& dag, ExprId value, std::string_view tensor) {
  const ExprId roots[] = {value};
  const std::vector<ExprId> below = reachable(dag, roots);
  return std::ranges::any_of(
      below, [&](ExprId id) { return dag[id].is(Op::load_) && dag.symbol_of(id) == tensor; });
}

bool is_read_besides_sums(const Attention& attention, std::string_view tensor) {
  Attention others = attention;
  others.sums.clear();
  const std::vector<ExprId> roots = others.roots();
  return std::ranges::any_of(roots,
                             [&](ExprId root) { return reads(attention.dag, root, tensor); });
}

std::vector<std::string> summed_with_gradients(const Attention& attention) {
  std::vector<std::string> names;
  for (const CapturedTensor& tensor : attention.tensors) {
    const bool is_summed = std::ranges::any_of(attention.sums, [&](const KeySum& sum) {
      return reads(attention.dag, sum.value, tensor.name);
    });
    if (is_summed && has_gradient(attention, tensor)) names.push_back(tensor.name);
  }
  return names;
}

Attention with_sums_given(const Attention& attention) {
  Attention given = attention;
  given.sums.clear();
  const std::vector<std::string> summed = summed_with_gradients(attention);
  const auto is_gone = [&](const std::string& name) {
    return is_listed(summed, name) && !is_read_besides_sums(attention, name);
  };
  for (CapturedTensor& tensor : given.tensors) {
    if (is_gone(tensor.name)) tensor.learned = false;
  }
  std::erase_if(given.gradients, is_gone);
  for (const KeySum& sum : attention.sums) {
    given.tensors.push_back(sum.tensor);
    const bool learned = is_differentiated(attention, sum);
    given.tensors.back().learned = learned;
    given.tensors.back().computed = true;
    if (learned && !attention.gradients.empty()) given.gradients.push_back(sum.tensor.name);
  }
  return given;
}

}  // namespace attn::ir
