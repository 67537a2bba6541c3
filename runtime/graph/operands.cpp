#include "runtime/graph/operands.h"

#include <fmt/format.h>

#include <type_traits>

namespace attn::graph {
namespace {

// Calls `use` with each input of an operation, in order.
template <typename Operation, typename Use>
void each_input(Operation& operation, const Use& use) {
  using Kind = std::remove_const_t<Operation>;
  if constexpr (std::is_same_v<Kind, Matmul>) {
    use(operation.a);
    use(operation.b);
    for (auto* size : {&operation.m, &operation.n, &operation.k}) {
      if (*size) use(**size);
    }
  } else if constexpr (std::is_same_v<Kind, Rng>) {
    use(operation.seed);
    use(operation.offset);
  } else if constexpr (std::is_same_v<Kind, PagedLoad>) {
    use(operation.container);
    use(operation.table);
    use(operation.lengths);
  } else {
    use(operation.x);
  }
  if constexpr (std::is_same_v<Kind, Pointwise>) {
    if (operation.b) use(*operation.b);
    if (operation.t) use(*operation.t);
  }
}

struct Output {
  Uid operator()(const Matmul& node) const { return node.c; }
  Uid operator()(const Pointwise& node) const { return node.y; }
  Uid operator()(const Reduction& node) const { return node.y; }
  Uid operator()(const Rng& node) const { return node.y; }
  Uid operator()(const PagedLoad& node) const { return node.y; }
};

struct Mnemonic {
  std::string operator()(const Matmul&) const { return "matmul"; }
  std::string operator()(const Pointwise& node) const { return std::string(to_string(node.mode)); }
  std::string operator()(const Reduction& node) const {
    return fmt::format("reduce_{}", to_string(node.op));
  }
  std::string operator()(const Rng&) const { return "rng"; }
  std::string operator()(const PagedLoad&) const { return "paged_load"; }
};

struct Compute {
  template <typename Operation>
  DType operator()(const Operation& node) const {
    return node.compute;
  }
  DType operator()(const Rng&) const { return DType::f32; }
  DType operator()(const PagedLoad&) const { return DType::f32; }
};

}  // namespace

std::vector<Uid> inputs_of(const Node& node) {
  std::vector<Uid> uids;
  const auto add = [&uids](Uid uid) { uids.push_back(uid); };
  std::visit([&add](const auto& operation) { each_input(operation, add); }, node);
  return uids;
}

void replace_inputs(Node& node, Uid from, Uid to) {
  const auto replace = [from, to](Uid& uid) {
    if (uid == from) uid = to;
  };
  std::visit([&replace](auto& operation) { each_input(operation, replace); }, node);
}

Uid output_of(const Node& node) { return std::visit(Output{}, node); }

std::string mnemonic_of(const Node& node) { return std::visit(Mnemonic{}, node); }

DType compute_of(const Node& node) { return std::visit(Compute{}, node); }

}  // namespace attn::graph
