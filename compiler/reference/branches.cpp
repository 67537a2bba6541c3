#include "compiler/reference/branches.h"

#include <algorithm>
#include <cmath>

#include "compiler/ir/branches.h"
#include "compiler/reference/problem.h"

namespace attn::reference {
namespace {

// What the branch is given: its own q, k and v.
Result<Inputs> inputs_of(const ir::Branch& branch, const Inputs& inputs) {
  Inputs own = inputs;
  for (const auto& [name, by] : branch.inputs) {
    const auto found = inputs.tensors.find(by);
    if (found == inputs.tensors.end())
      return {ErrorCode::binding, "the tensor " + by + " is missing"};
    own.tensors[name] = found->second;
  }
  return own;
}

// The attention that combines, with what the branches made.
struct Given {
  ir::Attention attention;
  Inputs inputs;
  std::map<std::string, io::HostTensor, std::less<>> made;  // o and lse of branches
};

Result<Given> with_branches(const ir::Attention& attention, const Inputs& inputs,
                            const Options& options) {
  Options quiet = options;
  quiet.observer = {};
  quiet.d_lse = nullptr;
  Given given{ir::with_branches_given(attention), inputs, {}};
  for (const ir::Branch& branch : attention.branches) {
    ATTN_ASSIGN(const Inputs own, inputs_of(branch, inputs));
    const ir::Attention alone = ir::branch_alone(attention, branch, true);
    ATTN_ASSIGN(Outputs outputs, evaluate(alone, own, quiet));
    given.inputs.tensors[branch.o.name] = outputs.o;
    given.made[branch.o.name] = std::move(outputs.o);
    if (alone.wants_lse) given.made[branch.lse()] = std::move(outputs.lse);
  }
  return given;
}

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The gradients and their sizes so far, to which branches add theirs.
class Summed {
 public:
  Summed(Gradients& to, bool has_sizes) : to_(to), has_sizes_(has_sizes) {}

  void add(const std::string& name, const io::HostTensor& of, const io::HostTensor* size) {
    const auto [sum, is_first] = to_.of.try_emplace(name, of);
    if (!is_first) add_values(sum->second, of, [](double x, double y) { return x + y; });
    if (!has_sizes_) return;
    const auto [sizes, is_own] = to_.sizes.try_emplace(name, *size);
    if (!is_own)
      add_values(sizes->second, *size, [](double x, double y) { return std::hypot(x, y); });
  }

 private:
  static void add_values(io::HostTensor& to, const io::HostTensor& from,
                         double (*add)(double, double)) {
    for (std::size_t i = 0; i < to.values.size(); ++i)
      to.values[i] = add(to.values[i], from.values[i]);
  }

  Gradients& to_;
  bool has_sizes_;
};

Status add_branch(const ir::Attention& attention, const ir::Branch& branch, const Inputs& inputs,
                  const io::HostTensor& d_o, const Options& options, Summed& to) {
  Options quiet = options;
  quiet.observer = {};
  quiet.d_lse = nullptr;
  quiet.rounds_d_o = true;
  const ir::Attention alone = ir::branch_alone(attention, branch, true);
  ATTN_ASSIGN(const Inputs own, inputs_of(branch, inputs));
  ATTN_ASSIGN(const Gradients found, gradients(alone, own, d_o, alone.gradients, quiet));
  for (const std::string& name : alone.gradients) {
    const io::HostTensor& of = found.of.at(name);
    to.add(branch.outer(name), of, options.sizes ? &found.sizes.at(name) : nullptr);
  }
  return {};
}

}  // namespace

Result<Outputs> evaluate_branches(const ir::Attention& attention, const Inputs& inputs,
                                  const Options& options) {
  ATTN_ASSIGN(Given given, with_branches(attention, inputs, options));
  ATTN_ASSIGN(Outputs outputs, evaluate(given.attention, given.inputs, options));
  outputs.branches = std::move(given.made);
  return outputs;
}

Result<Gradients> gradients_of_branches(const ir::Attention& attention, const Inputs& inputs,
                                        const io::HostTensor& d_o,
                                        const std::vector<std::string>& names,
                                        const Options& options) {
  ir::Attention wanted = attention;
  wanted.gradients = names;
  ATTN_ASSIGN(Given given, with_branches(wanted, inputs, options));
  ATTN_ASSIGN(Gradients result,
              gradients(given.attention, given.inputs, d_o, given.attention.gradients, options));
  Summed sums(result, options.sizes);
  for (const ir::Branch& branch : wanted.branches) {
    if (!is_among(given.attention.gradients, branch.o.name)) continue;
    const io::HostTensor d_branch = std::move(result.of.extract(branch.o.name).mapped());
    result.sizes.erase(branch.o.name);
    ATTN_RETURN_IF_ERROR(add_branch(wanted, branch, inputs, d_branch, options, sums));
  }
  for (auto& [name, tensor] : result.of) {
    const ir::CapturedTensor* captured = attention.find_tensor(name);
    const DType dtype = captured != nullptr ? captured->dtype : attention.dtype_of("d" + name);
    for (double& value : tensor.values) value = options.unrounded ? value : round_to(dtype, value);
  }
  result.outputs.branches = std::move(given.made);
  return result;
}

}  // namespace attn::reference
