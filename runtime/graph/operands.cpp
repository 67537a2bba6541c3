#include "runtime/graph/operands.h"

#include <fmt/format.h>

namespace attn::graph {
namespace {

struct Inputs {
  std::vector<Uid> operator()(const Matmul& node) const { return {node.a, node.b}; }
  std::vector<Uid> operator()(const Pointwise& node) const {
    std::vector<Uid> uids = {node.x};
    if (node.b) uids.push_back(*node.b);
    if (node.t) uids.push_back(*node.t);
    return uids;
  }
  std::vector<Uid> operator()(const Reduction& node) const { return {node.x}; }
};

struct Output {
  Uid operator()(const Matmul& node) const { return node.c; }
  Uid operator()(const Pointwise& node) const { return node.y; }
  Uid operator()(const Reduction& node) const { return node.y; }
};

struct Mnemonic {
  std::string operator()(const Matmul&) const { return "matmul"; }
  std::string operator()(const Pointwise& node) const { return std::string(to_string(node.mode)); }
  std::string operator()(const Reduction& node) const {
    return fmt::format("reduce_{}", to_string(node.op));
  }
};

}  // namespace

std::vector<Uid> inputs_of(const Node& node) { return std::visit(Inputs{}, node); }

Uid output_of(const Node& node) { return std::visit(Output{}, node); }

std::string mnemonic_of(const Node& node) { return std::visit(Mnemonic{}, node); }

DType compute_of(const Node& node) {
  return std::visit([](const auto& op) { return op.compute; }, node);
}

}  // namespace attn::graph
