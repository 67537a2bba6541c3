#include "runtime/graph/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

namespace attn::graph {
namespace {

// Calls use(uid) for the fixed inputs, in order.
template <typename Operation, typename Use>
void each_fixed(Operation& operation, const Use& use) {
  using Kind = std::remove_const_t<Operation>;
  if constexpr (std::is_same_v<Kind, Matmul>) {
    use(operation.a);
    use(operation.b);
  } else if constexpr (std::is_same_v<Kind, Rng>) {
    use(operation.seed);
    use(operation.offset);
  } else if constexpr (std::is_same_v<Kind, PagedLoad>) {
    use(operation.container);
    use(operation.table);
    use(operation.lengths);
  } else if constexpr (std::is_same_v<Kind, BandMask>) {
    use(operation.x);
    use(operation.fill);
  } else if constexpr (std::is_same_v<Kind, BlockDequantize>) {
    use(operation.x);
    use(operation.scale);
  } else if constexpr (std::is_same_v<Kind, SdpaForward>) {
    use(operation.q);
    use(operation.k);
    use(operation.v);
  } else {
    use(operation.x);
  }
  if constexpr (std::is_same_v<Kind, Pointwise>) {
    if (operation.b) use(*operation.b);
    if (operation.t) use(*operation.t);
  }
}

// Calls use(name, std::optional<Uid>) for the optional inputs.
template <typename Operation, typename Use>
void each_named(Operation& operation, const Use& use) {
  using Kind = std::remove_const_t<Operation>;
  if constexpr (std::is_same_v<Kind, Matmul>) {
    use("m", operation.m);
    use("n", operation.n);
    use("k", operation.k);
  } else if constexpr (std::is_same_v<Kind, BandMask>) {
    use("bound", operation.bound);
    use("lengths_q", operation.lengths_q);
    use("lengths_kv", operation.lengths_kv);
  } else if constexpr (std::is_same_v<Kind, SdpaForward>) {
    use("modified", operation.modified);
    use("sink", operation.sink);
#define ATTN_SDPA_INPUT(name, attribute) use(#name, operation.name);
#include "runtime/graph/sdpa_inputs.def"
#undef ATTN_SDPA_INPUT
  }
}

template <typename Operation, typename Use>
void each_input(Operation& operation, const Use& use) {
  each_fixed(operation, use);
  each_named(operation, [&use](const char*, auto& uid) {
    if (uid) use(*uid);
  });
}

struct Output {
  Uid operator()(const Matmul& node) const { return node.c; }
  Uid operator()(const Pointwise& node) const { return node.y; }
  Uid operator()(const Reduction& node) const { return node.y; }
  Uid operator()(const Rng& node) const { return node.y; }
  Uid operator()(const PagedLoad& node) const { return node.y; }
  Uid operator()(const BandMask& node) const { return node.y; }
  Uid operator()(const SdpaForward& node) const { return node.o; }
  Uid operator()(const Reshape& node) const { return node.y; }
  Uid operator()(const BlockDequantize& node) const { return node.y; }
};

struct Mnemonic {
  std::string operator()(const Matmul&) const { return "matmul"; }
  std::string operator()(const Pointwise& node) const { return std::string(to_string(node.mode)); }
  std::string operator()(const Reduction& node) const {
    return fmt::format("reduce_{}", to_string(node.op));
  }
  std::string operator()(const Rng&) const { return "rng"; }
  std::string operator()(const PagedLoad&) const { return "paged_load"; }
  std::string operator()(const BandMask& node) const {
    return fmt::format("band_mask_{}", to_string(node.side));
  }
  std::string operator()(const SdpaForward&) const { return "sdpa_forward"; }
  std::string operator()(const Reshape&) const { return "reshape"; }
  std::string operator()(const BlockDequantize&) const { return "block_dequantize"; }
};

struct Compute {
  template <typename Operation>
  DType operator()(const Operation& node) const {
    return node.compute;
  }
  DType operator()(const Rng&) const { return DType::f32; }
  DType operator()(const PagedLoad&) const { return DType::f32; }
  DType operator()(const BandMask&) const { return DType::f32; }
  DType operator()(const SdpaForward&) const { return DType::f32; }
  DType operator()(const Reshape&) const { return DType::f32; }
  DType operator()(const BlockDequantize&) const { return DType::f32; }
};

}  // namespace

std::vector<Uid> fixed_inputs_of(const Node& node) {
  std::vector<Uid> uids;
  const auto add = [&uids](Uid uid) { uids.push_back(uid); };
  std::visit([&add](const auto& operation) { each_fixed(operation, add); }, node);
  return uids;
}

std::vector<NamedInput> named_inputs_of(const Node& node) {
  std::vector<NamedInput> inputs;
  const auto add = [&inputs](const char* name, const std::optional<Uid>& uid) {
    if (uid) inputs.push_back({name, *uid});
  };
  std::visit([&add](const auto& operation) { each_named(operation, add); }, node);
  return inputs;
}

std::vector<Uid> inputs_of(const Node& node) {
  std::vector<Uid> uids = fixed_inputs_of(node);
  for (const NamedInput& input : named_inputs_of(node)) uids.push_back(input.uid);
  return uids;
}

void replace_inputs(Node& node, Uid from, Uid to) {
  const auto replace = [from, to](Uid& uid) {
    if (uid == from) uid = to;
  };
  std::visit([&replace](auto& operation) { each_input(operation, replace); }, node);
}

Uid output_of(const Node& node) { return std::visit(Output{}, node); }

std::vector<Uid> outputs_of(const Node& node) {
  std::vector<Uid> uids = {output_of(node)};
  const auto* sdpa = std::get_if<SdpaForward>(&node);
  if (sdpa != nullptr && sdpa->stats) uids.push_back(*sdpa->stats);
  return uids;
}

bool is_written(const BackendGraph& graph, Uid uid) {
  return std::ranges::any_of(graph.nodes, [uid](const Node& node) {
    const std::vector<Uid> outputs = outputs_of(node);
    return std::ranges::find(outputs, uid) != outputs.end();
  });
}

std::set<Uid> written_by(const BackendGraph& graph) {
  std::set<Uid> uids;
  for (const Node& node : graph.nodes) {
    for (const Uid uid : outputs_of(node)) uids.insert(uid);
  }
  return uids;
}

std::string mnemonic_of(const Node& node) { return std::visit(Mnemonic{}, node); }

DType compute_of(const Node& node) { return std::visit(Compute{}, node); }

const SdpaForward* sdpa_of(const BackendGraph& graph) {
  return graph.nodes.empty() ? nullptr : std::get_if<SdpaForward>(&graph.nodes.back());
}

}  // namespace attn::graph
