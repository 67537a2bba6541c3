#include "compiler/ir/branches.h"

#include <algorithm>
#include <set>

namespace attn::ir {
namespace {

constexpr std::string_view kInputs[] = {"q", "k", "v"};

bool contains_name(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The tensors that expressions of the attention load; not those of defaults alone.
std::set<std::string> loaded(const Attention& attention) {
  Attention computed = attention;
  for (CapturedTensor& tensor : computed.tensors) tensor.fallback.reset();
  std::set<std::string> names;
  for (const ExprId id : reachable(computed.dag, computed.roots())) {
    if (computed.dag[id].is(Op::load_)) names.insert(computed.dag.symbol_of(id));
  }
  return names;
}

// Whether the whole has a gradient of the tensor.
bool is_wanted(const Attention& attention, const std::string& tensor) {
  const CapturedTensor* captured = attention.find_tensor(tensor);
  if (captured != nullptr && !captured->learned) return false;
  return attention.gradients.empty() || contains_name(attention.gradients, tensor);
}

// What of the branch has a gradient, in its own words.
std::vector<std::string> gradients_of(const Attention& attention, const Branch& branch) {
  std::vector<std::string> names = tensors_read(branch);
  std::erase_if(names,
                [&](const std::string& name) { return !is_wanted(attention, branch.outer(name)); });
  return names;
}

}  // namespace

std::vector<const Attention*> attentions_of(const Attention& attention) {
  std::vector<const Attention*> all;
  for (const Branch& branch : attention.branches) all.push_back(&branch.attention);
  all.push_back(&attention);
  return all;
}

std::vector<std::string> tensors_read(const Branch& branch) {
  std::vector<std::string> names(std::begin(kInputs), std::end(kInputs));
  const std::set<std::string> read = loaded(branch.attention);
  for (const CapturedTensor& tensor : branch.attention.tensors) {
    if (read.contains(tensor.name)) names.push_back(tensor.name);
  }
  return names;
}

bool has_gradients(const Attention& attention, const Branch& branch) {
  return !gradients_of(attention, branch).empty();
}

Attention branch_alone(const Attention& attention, const Branch& branch, bool trains) {
  Attention alone = branch.attention;
  alone.layouts["o"] = Layout{.kind = LayoutKind::bhsd};
  alone.gradients = gradients_of(attention, branch);
  alone.deterministic = attention.deterministic;
  alone.wants_o = true;
  alone.wants_lse = trains && !alone.is_pointwise();
  for (CapturedTensor& tensor : alone.tensors) {
    tensor.learned = contains_name(alone.gradients, tensor.name);
  }
  return alone;
}

Attention with_branches_given(const Attention& attention) {
  Attention given = attention;
  given.branches.clear();
  given.wants_branches = false;
  const std::set<std::string> read = loaded(given);
  const auto branches_read = [&](const std::string& name) {
    return std::ranges::any_of(attention.branches, [&](const Branch& branch) {
      const std::vector<std::string> names = tensors_read(branch);
      return std::ranges::any_of(
          names, [&](const std::string& each) { return branch.outer(each) == name; });
    });
  };
  std::vector<std::string> gradients;
  for (const std::string_view input : kInputs) {
    if (is_wanted(attention, std::string(input))) gradients.emplace_back(input);
  }
  for (CapturedTensor& tensor : given.tensors) {
    const bool is_elsewhere = !read.contains(tensor.name) && branches_read(tensor.name);
    tensor.learned = tensor.learned && !is_elsewhere && is_wanted(attention, tensor.name);
    if (tensor.learned) gradients.push_back(tensor.name);
  }
  for (const Branch& branch : attention.branches) {
    given.tensors.push_back(branch.o);
    given.tensors.back().computed = true;
    given.tensors.back().learned = has_gradients(attention, branch);
    if (given.tensors.back().learned) gradients.push_back(branch.o.name);
  }
  // Those of the clause first, in its order.
  std::vector<std::string> ordered;
  for (const std::string& name : attention.gradients) {
    if (contains_name(gradients, name)) ordered.push_back(name);
  }
  for (const std::string& name : gradients) {
    if (!contains_name(ordered, name)) ordered.push_back(name);
  }
  given.gradients = std::move(ordered);
  return given;
}

}  // namespace attn::ir
