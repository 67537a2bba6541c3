#include "compiler/codegen/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"

namespace attn::codegen {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

// The axes that an expression depends on, and their sizes.
struct Domain {
  masks::Axes axes;
  std::vector<std::int64_t> dims;    // of the axes
  std::vector<std::int64_t> scores;  // [B, Hq, Sq, Skv], 1 where nothing varies
  double elements = 1;
};

Domain domain_of(const ir::Attention& attention, const std::vector<ExprId>& expressions) {
  Domain domain;
  for (const ExprId id : ir::reachable(attention.dag, expressions)) {
    domain.axes.batch |= attention.dag[id].is(Op::batch_);
    domain.axes.head |= attention.dag[id].is(Op::head_);
    domain.axes.row |= attention.dag[id].is(Op::row_);
    domain.axes.column |= attention.dag[id].is(Op::column_);
  }
  const std::pair<bool, Dim> all[] = {{domain.axes.batch, Dim::B},
                                      {domain.axes.head, Dim::Hq},
                                      {domain.axes.row, Dim::Sq},
                                      {domain.axes.column, Dim::Skv}};
  for (const auto& [varies, dim] : all) {
    domain.scores.push_back(varies ? attention.dims[dim] : 1);
    if (varies) domain.dims.push_back(attention.dims[dim]);
    domain.elements *= static_cast<double>(domain.scores.back());
  }
  return domain;
}

std::string what_of(const ir::Node& node) {
  switch (node.op) {
    case Op::load_: return "an index is outside the tensor";
    case Op::floordiv_:
    case Op::mod_: return "the divisor is 0";
    default:
      return fmt::format("a shift by less than 0 or more than {}", ir::most_shift(node.type));
  }
}

class CheckEmitter {
 public:
  // The hoisted dag has the nodes of both.
  CheckEmitter(const ir::Attention& attention, const rewrite::Hoisted& hoisted)
      : attention_(attention) {
    std::vector<ExprId> derived;
    for (const rewrite::DerivedTensor& tensor : hoisted.derived)
      derived.push_back(tensor.expression);
    attention_.dag = hoisted.attention.dag;
    faults_ = faults_of(attention_, derived);
    hide_by_lengths();
    roots_ = attention_.masks;
    roots_.push_back(attention_.score);
    if (attention_.sink) roots_.push_back(*attention_.sink);
    if (attention_.dropout && attention_.dropout->keep) roots_.push_back(*attention_.dropout->keep);
    if (!decided_by_computed()) leave_out_computed();
  }

  std::optional<plan::IndexCheck> emit() {
    if (faults_.empty() || faults_.size() > plan::kMostFaults) return std::nullopt;
    const Domain scores = domain_of(attention_, roots_);
    plan::IndexCheck check;
    const std::string quick = quick_kernel(check.quick);
    if (quick.empty() || scores.elements > static_cast<double>(plan::kMostChecked)) {
      return std::nullopt;
    }
    const KernelInputs inputs = read_inputs();
    parameters_ = {"unsigned long long* first"};
    parameters_.insert(parameters_.end(), inputs.parameters.begin(), inputs.parameters.end());
    check.scores = scores.scores;
    check.inputs = inputs.operands;
    check.source = codegen::include_text("values.cuh") +
                   codegen::kernel_text(plan::kQuickCheckKernel, parameters_, quick) +
                   codegen::kernel_text(plan::kExactCheckKernel, parameters_, exact_kernel(scores));
    for (const ExprId id : faults_) {
      check.faults.push_back({ir::to_source(attention_, id), what_of(dag()[id])});
    }
    return check;
  }

 private:
  // Whether a condition or an integer depends on tensors that are computed only when the program
  // runs.
  bool decided_by_computed() const {
    std::set<ExprId> depend;
    for (const ExprId id : ir::reachable(attention_.dag, roots_)) {
      const ir::Node& node = attention_.dag[id];
      const bool is_computed = node.is(Op::load_) &&
                               attention_.find_tensor(attention_.dag.symbol_of(id)) != nullptr &&
                               attention_.find_tensor(attention_.dag.symbol_of(id))->computed;
      const bool depends = is_computed || std::ranges::any_of(node.operands, [&](ExprId operand) {
                             return depend.contains(operand);
                           });
      if (!depends) continue;
      if (node.type != ir::Type::real) return true;
      depend.insert(id);
    }
    return false;
  }

  // Whether their elements have a value does not depend on what it is.
  void leave_out_computed() {
    for (const ir::CapturedTensor& tensor : attention_.tensors) {
      if (tensor.computed) left_out_.insert(tensor.name);
    }
  }

  void begin(ExpressionWriter& writer) const {
    for (const std::string& name : left_out_) writer.leave_out(name);
  }

  KernelInputs read_inputs() const {
    KernelInputs all = inputs_of(attention_, roots_), read;
    for (std::size_t i = 0; i < all.operands.size(); ++i) {
      const auto* tensor = std::get_if<plan::TensorOperand>(&all.operands[i]);
      if (tensor != nullptr && left_out_.contains(tensor->name)) continue;
      read.operands.push_back(std::move(all.operands[i]));
      read.parameters.push_back(std::move(all.parameters[i]));
    }
    return read;
  }

  // Hides scores past the lengths, as a mask does.
  void hide_by_lengths() {
    const auto hide = [this](std::string_view lengths, Op index) {
      const ExprId batch[] = {dag().leaf(Op::batch_)};
      const ExprId length =
          dag().add_symbol(Op::load_, std::string(lengths), ir::Type::integer, batch);
      const ExprId shown = dag().add(Op::lt_, {dag().leaf(index), length});
      attention_.masks.insert(attention_.masks.begin(), shown);
    };
    if (attention_.lengths_kv) hide(ir::kLengthsKv, Op::column_);
    if (attention_.lengths_q) hide(ir::kLengthsQ, Op::row_);
  }

  // The body; empty if there are too many elements.
  std::string quick_kernel(std::int64_t& threads) {
    ExpressionWriter writer(attention_);
    begin(writer);
    std::string body;
    double all = 0;
    for (const Family& family : in_turns()) {
      const ExprId id = family.front();
      const Domain domain = domain_of(attention_, operands_at_fault(id));
      const auto turns = static_cast<std::int64_t>(family.size());
      all += domain.elements * static_cast<double>(turns);
      if (all > static_cast<double>(plan::kMostChecked)) return "";
      const std::int64_t elements = std::accumulate(domain.dims.begin(), domain.dims.end(),
                                                    std::int64_t{1}, std::multiplies<>());
      threads += elements * turns;
      writer.begin(domain.axes, domain.dims);
      if (turns > 1) writer.repeat("turn", family.size());
      for (const std::size_t operand : places_at_fault(id))
        (void)writer.value(operands_of(dag(), family, operand));
      const std::string failure = writer.failure(family);
      body += fmt::format(
          "  if (i < {0}) {{\n{1}{2}    if ({3}) *first = 0;\n    return;\n  }}\n"
          "  i -= {0};\n",
          elements * turns, turn_text(elements, turns), writer.statements(4), failure);
    }
    return body;
  }

  static std::string turn_text(std::int64_t elements, std::int64_t turns) {
    if (turns == 1) return "";
    return fmt::format("    const int turn = (int)(i / {0});\n    i %= {0};\n", elements);
  }

  // Families of loads. A load that fails only where another one does is left out, and many loads of
  // one shape become turns of one.
  std::vector<Family> in_turns() {
    std::set<std::tuple<std::string, std::vector<ExprId>>> known;
    std::map<std::tuple<std::size_t, std::vector<std::size_t>>, Family> alike;
    Repetitions shapes(dag(), [](ExprId) { return false; });
    for (const ExprId id : faults_) {
      const bool loads = dag()[id].is(Op::load_);
      std::string what = loads ? dag().symbol_of(id) : what_of(dag()[id]);
      if (loads) what += fmt::format(" {}", fmt::join(places_at_fault(id), " "));
      if (!known.emplace(std::move(what), operands_at_fault(id)).second) continue;
      alike[{shapes.shape_of(id), places_at_fault(id)}].push_back(id);
    }
    std::map<ExprId, Family> in_order;
    for (const auto& [key, family] : alike) {
      if (family.size() >= kFewestTurns) in_order[family.front()] = family;
      for (const ExprId id : family) {
        if (family.size() < kFewestTurns) in_order[id] = {id};
      }
    }
    std::vector<Family> all;
    for (const auto& [first, family] : in_order) all.push_back(family);
    return all;
  }

  std::string exact_kernel(const Domain& scores) {
    ExpressionWriter writer(attention_, faults_);
    begin(writer);
    writer.begin(scores.axes, scores.dims);
    std::string hidden, fault = "0";
    for (const ExprId root : roots_) (void)writer.value(root);
    for (std::size_t i = roots_.size(); i-- > 0;) {
      const std::string one = writer.fault(roots_[i]);
      if (one != "0") fault = fmt::format("{0} != 0 ? {0} : {1}", one, fault);
    }
    for (const ExprId mask : attention_.masks) {
      hidden +=
          fmt::format("  if ({} == 0 && !{}) return;\n", writer.fault(mask), writer.value(mask));
    }
    return fmt::format(
        "  if (i >= {}) return;\n{}{}  const int fault = {};\n"
        "  if (fault != 0) atomicMin(first, (unsigned long long)i << 16 | fault);\n",
        static_cast<std::int64_t>(scores.elements), writer.statements(2), hidden, fault);
  }

  // The operands that decide whether the node has a value.
  std::vector<ExprId> operands_at_fault(ExprId id) {
    const ir::Node& node = dag()[id];
    if (node.is(Op::load_)) return unproven_indices(attention_, id);
    return {node.operands[1]};
  }

  std::vector<std::size_t> places_at_fault(ExprId id) {
    const std::vector<ExprId> decisive = operands_at_fault(id);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < dag()[id].operands.size(); ++i) {
      if (std::ranges::find(decisive, dag()[id].operands[i]) != decisive.end()) places.push_back(i);
    }
    return places;
  }

  ir::Dag& dag() { return attention_.dag; }

  ir::Attention attention_;
  std::vector<ExprId> faults_;
  std::vector<ExprId> roots_;
  std::set<std::string> left_out_;
  std::vector<std::string> parameters_;
};

}  // namespace

std::optional<plan::IndexCheck> index_check(const ir::Attention& attention,
                                            const rewrite::Hoisted& hoisted) {
  return CheckEmitter(attention, hoisted).emit();
}

void set_check(plan::Program& program, std::optional<plan::IndexCheck> check) {
  const auto is_bound = [&program](const plan::OperandSource& input) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&input);
    return tensor == nullptr || std::ranges::find(program.tensors, tensor->name,
                                                  &plan::TensorInfo::name) != program.tensors.end();
  };
  program.check.reset();
  if (check && std::ranges::all_of(check->inputs, is_bound)) program.check = std::move(check);
}

}  // namespace attn::codegen
