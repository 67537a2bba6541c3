#include "compiler/ir/prologues.h"

#include <algorithm>
#include <map>

#include "compiler/ir/key_sums.h"

namespace attn::ir {
namespace {

std::vector<ExprId> roots_of(const Prologue& prologue) {
  std::vector<ExprId> roots = prologue.sums;
  roots.push_back(prologue.value);
  return roots;
}

bool reads_tensor(const Attention& attention, const std::optional<Prologue>& prologue,
                  std::string_view name) {
  if (!prologue) return false;
  const std::vector<ExprId> roots = roots_of(*prologue);
  return std::ranges::any_of(roots, [&](ExprId root) { return reads(attention.dag, root, name); });
}

class ViewMaker {
 public:
  ViewMaker(const Attention& from, const Prologue& prologue, std::string_view tensor)
      : from_(from), prologue_(prologue), of_k_(tensor == "k") {
    view_.tensor = tensor;
    view_.x = from.unused_name("x");
    view_.sums_of_row = from.unused_name("row_sums");
  }

  PrologueView run() && {
    Attention& to = view_.attention;
    to.name = from_.name;
    to.dtype = from_.dtype;
    const Dims& d = from_.dims;
    const std::int64_t heads = d[of_k_ ? Dim::Hkv : Dim::Hq];
    const std::int64_t rows = d[of_k_ ? Dim::Skv : Dim::Sq], depth = d[Dim::Dqk];
    for (const auto& [dim, size] :
         {std::pair(Dim::B, d[Dim::B]), std::pair(Dim::Hq, heads), std::pair(Dim::Hkv, heads),
          std::pair(Dim::Sq, rows), std::pair(Dim::Skv, depth), std::pair(Dim::Dqk, depth),
          std::pair(Dim::Dv, depth)}) {
      to.dims.set(dim, size);
    }
    to.params = from_.params;
    for (const CapturedTensor& tensor : from_.tensors) add_tensor(tensor);
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(1, prologue_.sums.size()));
    add_tensor(view_.x, from_.dtype, {d[Dim::B], heads, rows, depth});
    add_tensor(view_.sums_of_row, DType::f32, {count});
    for (const ExprId id : reachable(from_.dag, roots_of(prologue_))) numbers_[id] = moved(id);
    view_.value = to.score = to.scale = numbers_.at(prologue_.value);
    for (const ExprId sum : prologue_.sums) view_.sums.push_back(numbers_.at(sum));
    view_.numbers = std::move(numbers_);
    return std::move(view_);
  }

 private:
  Dag& dag() { return view_.attention.dag; }

  void add_tensor(const CapturedTensor& tensor) {
    std::vector<std::int64_t> dims;
    for (const ExprId extent : tensor.extents)
      dims.push_back(*fold_integer(from_.dag, extent, from_.dims));
    add_tensor(tensor.name, tensor.dtype, dims);
    view_.attention.tensors.back().learned = tensor.learned;
  }

  void add_tensor(const std::string& name, DType dtype, const std::vector<std::int64_t>& dims) {
    CapturedTensor tensor{name, dtype, {}, {}};
    for (const std::int64_t size : dims) tensor.extents.push_back(dag().integer(size));
    view_.attention.tensors.push_back(std::move(tensor));
  }

  ExprId moved(ExprId id) {
    const Node& node = from_.dag[id];
    if (node.is(Op::depth_)) return dag().leaf(Op::column_, node.pos);
    if (node.is(Op::column_)) return dag().leaf(Op::row_, node.pos);
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(numbers_.at(operand));
    if (node.is(Op::row_sum_)) {
      operands = {dag().integer(from_.dag.integer_of(id))};
      return dag().add_symbol(Op::load_, view_.sums_of_row, Type::real, operands, node.pos);
    }
    const bool is_x = node.is(Op::load_) && from_.dag.symbol_of(id) == view_.tensor;
    if (is_x) return dag().add_symbol(Op::load_, view_.x, Type::real, operands, node.pos);
    return dag().add_like(node, operands);
  }

  const Attention& from_;
  const Prologue& prologue_;
  const bool of_k_;
  std::map<ExprId, ExprId> numbers_;
  PrologueView view_;
};

}  // namespace

std::int64_t PrologueView::rows() const {
  return attention.dims[Dim::B] * attention.dims[Dim::Hq] * attention.dims[Dim::Sq];
}

bool PrologueView::is_x(ExprId id) const {
  return attention.dag[id].is(Op::load_) && attention.dag.symbol_of(id) == x;
}

bool PrologueView::is_sum(ExprId id) const {
  return attention.dag[id].is(Op::load_) && attention.dag.symbol_of(id) == sums_of_row;
}

std::int64_t PrologueView::number_of(ExprId sum) const {
  return attention.dag.integer_of(attention.dag[sum].operands[0]);
}

std::vector<PrologueView> prologue_views(const Attention& attention) {
  std::vector<PrologueView> views;
  if (attention.prologue_q) views.push_back(ViewMaker(attention, *attention.prologue_q, "q").run());
  if (attention.prologue_k) views.push_back(ViewMaker(attention, *attention.prologue_k, "k").run());
  return views;
}

std::vector<std::string> learned_by_prologues(const Attention& attention) {
  std::vector<std::string> names;
  for (const CapturedTensor& tensor : attention.tensors) {
    const bool is_read = reads_tensor(attention, attention.prologue_q, tensor.name) ||
                         reads_tensor(attention, attention.prologue_k, tensor.name);
    if (is_read && has_gradient(attention, tensor)) names.push_back(tensor.name);
  }
  return names;
}

bool goes_through(const Attention& attention, std::string_view tensor) {
  const std::optional<Prologue>& prologue =
      tensor == "q" ? attention.prologue_q : attention.prologue_k;
  if (!prologue) return false;
  if (attention.gradients.empty()) return true;
  if (std::ranges::find(attention.gradients, tensor) != attention.gradients.end()) return true;
  const std::vector<std::string> learned = learned_by_prologues(attention);
  return std::ranges::any_of(
      learned, [&](const std::string& name) { return reads_tensor(attention, prologue, name); });
}

Attention with_prologues_given(const Attention& attention) {
  Attention given = attention;
  given.prologue_q.reset();
  given.prologue_k.reset();
  for (const auto& [name, prologue] :
       {std::pair("q", &attention.prologue_q), std::pair("k", &attention.prologue_k)}) {
    if (!*prologue) continue;
    given.layouts[name] = {.kind = LayoutKind::bhsd};
    const bool is_listed = std::ranges::find(given.gradients, name) != given.gradients.end();
    if (!given.gradients.empty() && goes_through(attention, name) && !is_listed)
      given.gradients.insert(given.gradients.begin(), name);
  }
  const std::vector<ExprId> roots = given.roots();
  for (const std::string& name : learned_by_prologues(attention)) {
    const bool stays =
        std::ranges::any_of(roots, [&](ExprId root) { return reads(given.dag, root, name); });
    if (stays) continue;
    std::erase(given.gradients, name);
    std::ranges::find(given.tensors, name, &CapturedTensor::name)->learned = false;
  }
  return given;
}

ExprId at_depth(Dag& dag, ExprId root, ExprId depth) {
  std::map<ExprId, ExprId> moved;
  for (const ExprId id : reachable(dag, std::span(&root, 1))) {
    const Node node = dag[id];  // a copy: nodes are added
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(moved.at(operand));
    moved[id] = node.is(Op::depth_)         ? depth
                : operands == node.operands ? id
                                            : dag.add_like(node, operands);
  }
  return moved.at(root);
}

}  // namespace attn::ir
