#include "compiler/reference/branches.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/ir/branches.h"
#include "compiler/reference/problem.h"

namespace attn::reference {
namespace {

using Axes = std::array<std::size_t, 4>;

// The axes of a tensor that is row-major in this layout, by [B, H, S, D].
Axes axes_of(const ir::Layout& layout) {
  if (layout.kind == ir::LayoutKind::bhsd) return {0, 1, 2, 3};
  if (layout.kind == ir::LayoutKind::sbhd) return {1, 2, 0, 3};
  return {0, 2, 1, 3};
}

Axes outward(const Axes& axes) {
  Axes result{};
  for (std::size_t i = 0; i < axes.size(); ++i) result[axes[i]] = i;
  return result;
}

// The tensor with axis i from axis axes[i].
io::HostTensor permuted(const io::HostTensor& from, const Axes& axes) {
  io::HostTensor to = from;
  std::array<std::size_t, 4> strides{}, extents{};
  std::size_t stride = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    strides[axis] = stride;
    stride *= static_cast<std::size_t>(from.dims[axis]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    to.dims[i] = from.dims[axes[i]];
    extents[i] = static_cast<std::size_t>(to.dims[i]);
  }
  std::size_t at = 0;
  for (std::size_t a = 0; a < extents[0]; ++a)
    for (std::size_t b = 0; b < extents[1]; ++b)
      for (std::size_t c = 0; c < extents[2]; ++c)
        for (std::size_t d = 0; d < extents[3]; ++d)
          to.values[at++] = from.values[a * strides[axes[0]] + b * strides[axes[1]] +
                                        c * strides[axes[2]] + d * strides[axes[3]]];
  return to;
}

const ir::Layout& layout_of(const ir::Branch& branch, const std::string& name) {
  return branch.attention.layouts.find(name)->second;
}

// What the branch is given: its own q, k and v.
Result<Inputs> inputs_of(const ir::Branch& branch, const Inputs& inputs) {
  Inputs own = inputs;
  for (const auto& [name, by] : branch.inputs) {
    const auto found = inputs.tensors.find(by);
    if (found == inputs.tensors.end())
      return {ErrorCode::binding, "the tensor " + by + " is missing"};
    if (found->second.dims.size() != 4) return {ErrorCode::binding, by + " is not of rank 4"};
    own.tensors[name] = permuted(found->second, axes_of(layout_of(branch, name)));
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
    const io::HostTensor* size = options.sizes ? &found.sizes.at(name) : nullptr;
    if (!branch.inputs.contains(name)) {
      to.add(name, of, size);
      continue;
    }
    const Axes axes = outward(axes_of(layout_of(branch, name)));
    const io::HostTensor outer_size = size ? permuted(*size, axes) : io::HostTensor();
    to.add(branch.outer(name), permuted(of, axes), size ? &outer_size : nullptr);
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
  ATTN_ASSIGN(Gradients result, gradients(given.attention, given.inputs, d_o,
                                          given.attention.gradients, options));
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
    for (double& value : tensor.values)
      value = options.unrounded ? value : round_to(dtype, value);
  }
  result.outputs.branches = std::move(given.made);
  return result;
}

}  // namespace attn::reference
