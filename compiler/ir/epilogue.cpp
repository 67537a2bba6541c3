#include "compiler/ir/epilogue.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::ir {
namespace {

bool reads(const Dag& dag, const std::vector<ExprId>& roots, std::string_view tensor) {
  return std::ranges::any_of(reachable(dag, roots), [&](ExprId id) {
    return dag[id].is(Op::load_) && dag.symbol_of(id) == tensor;
  });
}

// What `output` and `depth` are in the view.
ExprId viewed(const Node& node, const std::vector<ExprId>& operands, Dag& to) {
  if (node.is(Op::output_)) return to.leaf(Op::score_, node.pos);
  if (node.is(Op::depth_)) return to.leaf(Op::column_, node.pos);
  return to.add_like(node, operands);
}

}  // namespace

Attention epilogue_view(const Attention& attention, std::map<ExprId, ExprId>* numbers_of) {
  ATTN_CHECK(attention.epilogue.has_value(), "a view of an epilogue needs one");
  Attention view = attention;
  view.score = *attention.epilogue;
  view.epilogue.reset();
  view.masks.clear();
  view.sums.clear();  // of the keys, which the view has not
  view.normalize = Normalize::softmax;
  view.quotient.reset();
  view.sink.reset();
  view.dropout.reset();
  view.lengths_kv = false;
  view.wants_o_inner = view.reads_d_lse = false;
  view.dims.set(Dim::Skv, attention.dims.get(Dim::Dv));
  if (!epilogue_reads(attention, kLengthsKv)) {  // else a tensor as any other
    std::erase_if(view.tensors,
                  [](const CapturedTensor& tensor) { return tensor.name == kLengthsKv; });
  }
  view.gradients.clear();
  Dag from = attention.dag;
  view.scale = from.real(1);
  view.dag = {};
  std::vector<ExprId> numbers(from.size());
  std::vector<ExprId> roots;
  for (const ExprId* place : view.root_places()) roots.push_back(*place);
  for (const ExprId id : reachable(from, roots)) {
    std::vector<ExprId> operands;
    for (const ExprId operand : from[id].operands) operands.push_back(numbers[operand]);
    numbers[id] = viewed(from[id], operands, view.dag);
  }
  for (const ExprId id : reachable(from, roots)) {
    if (numbers_of != nullptr) numbers_of->emplace(id, numbers[id]);
  }
  for (ExprId* place : view.root_places()) *place = numbers[*place];
  return view;
}

Attention without_epilogue(const Attention& attention) {
  Attention inner = attention;
  inner.epilogue.reset();
  inner.wants_o_inner = false;
  for (CapturedTensor& tensor : inner.tensors) {
    if (!epilogue_reads(attention, tensor.name) || others_read(attention, tensor.name)) continue;
    tensor.learned = false;
    std::erase(inner.gradients, tensor.name);
  }
  return inner;
}

bool epilogue_reads(const Attention& attention, std::string_view tensor) {
  return attention.epilogue && reads(attention.dag, {*attention.epilogue}, tensor);
}

bool others_read(const Attention& attention, std::string_view tensor) {
  Attention inner = attention;
  inner.epilogue.reset();
  return reads(inner.dag, inner.roots(), tensor);
}

}  // namespace attn::ir
