#include "compiler/rewrite/hoist.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "compiler/ir/real_function.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks/range.h"
#include "compiler/rewrite/division.h"
#include "compiler/rewrite/reals.h"
#include "compiler/support/text.h"

namespace attn::rewrite {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr double kReadingIntegers = 200;
constexpr double kCostliest = 1e9;  // a cap: shared parts are counted at each use

double bytes_of(const std::vector<std::int64_t>& dims, double size = 4) {
  double bytes = size;
  for (const std::int64_t extent : dims) bytes *= static_cast<double>(extent);
  return bytes;
}

// What is known of a node.
struct Facts {
  masks::Axes axes;     // without those of extent 1
  masks::Axes table;    // of the parts that must become a table
  bool tabled = false;  // whether there are such parts
  bool score = false;   // depends on the score
  bool input = false;   // depends on a tensor or param
  bool served = true;   // the kernel can compute all of it
  bool vector = false;  // reads a tensor over rows or the batch that the kernel cannot read
  double cost = 0;      // per score
};

}  // namespace

double cost_for_each_score(const Node& node) {
  switch (node.op) {
    case Op::const_bool_:
    case Op::const_int_:
    case Op::const_real_:
    case Op::score_:
    case Op::unit_:
    case Op::dim_:
    case Op::param_:
    case Op::to_real_: return 0;
    case Op::load_:
    case Op::select_: return 2;
    case Op::div_: return 6;
    case Op::pow_: return 16;
    case Op::floordiv_:
    case Op::mod_: return ir::is_integral(node.type) ? 40 : 10;
    default: break;
  }
  const ir::RealFunction* function = ir::find_real_function(node.op);
  return function != nullptr ? function->cost : 1;
}

namespace {

// What a value must be to be derived: its size, its type and what it reads.
class HoistLimits {
 public:
  HoistLimits(const ir::Attention& attention, const HoistOptions& options)
      : attention_(attention), options_(options) {}

  std::vector<std::int64_t> extents_of(masks::Axes axes) const {
    std::vector<std::int64_t> extents;
    const ir::Dims& dims = attention_.dims;
    if (axes.batch) extents.push_back(dims[Dim::B]);
    if (axes.head) extents.push_back(dims[Dim::Hq]);
    if (axes.row) extents.push_back(dims[Dim::Sq]);
    if (axes.column) extents.push_back(dims[Dim::Skv]);
    return extents;
  }

  // Whether a table over these axes is small enough.
  bool fits(const masks::Axes& axes) const {
    return bytes_of(extents_of(axes)) <= static_cast<double>(options_.most_table_bytes);
  }

 protected:
  // Whether the kernel would have to read the value from a tensor that it cannot read.
  bool is_vector(const Facts& facts) const {
    if (options_.vectors || facts.score || facts.axes.column) return false;
    if (!facts.axes.row && !facts.axes.batch) return false;
    return facts.input || !facts.served || facts.cost >= worth(facts.axes);
  }

  double worth(const masks::Axes& axes) const {
    if (!axes.row && !axes.column) return kWorthDeriving;
    return std::max(options_.worth_vector, kWorthReading * reading(axes));
  }

  // The cost of reading a vector over the rows or columns.
  double reading(const masks::Axes& axes) const {
    if (!axes.row && !axes.column) return kReadingOne;
    return axes.column ? options_.reading.column : options_.reading.row;
  }

  static double own_cost(const Node& node, const masks::Axes& axes) {
    const bool integers = node.is(Op::load_) && ir::is_integral(node.type);
    return integers && axes.both_sides() ? kReadingIntegers : cost_for_each_score(node);
  }

  // Whether it is of 64-bit integers, or has them as operands.
  bool is_wide(const Node& node) const {
    const auto wide = [this](ExprId id) { return attention_.dag[id].type == ir::Type::wide; };
    return node.type == ir::Type::wide || std::ranges::any_of(node.operands, wide);
  }

  static bool is_in_cudnn(Op op) {
    const ir::RealFunction* function = ir::find_real_function(op);
    return function == nullptr || function->is_in_cudnn();
  }

  bool is_readable(ExprId load) const {
    const Status status = options_.readable(attention_, load);
    return status.ok() || status.error().code != ErrorCode::unsupported;
  }

  // Integer // and % that the kernel does not compute exactly.
  bool divides_unevenly(const Node& node) const {
    if (node.type != ir::Type::integer || (!node.is(Op::floordiv_) && !node.is(Op::mod_))) {
      return false;
    }
    return !is_exact_in_kernel(attention_, node);
  }

  const ir::Attention& attention_;
  const HoistOptions& options_;
};

class HoistAnalysis : public HoistLimits {
 public:
  HoistAnalysis(const ir::Attention& attention, const HoistOptions& options)
      : HoistLimits(attention, options), dependence_(attention.dag), facts_(attention.dag.size()) {
    std::vector<ExprId> roots = attention.roots();
    roots.insert(roots.end(), options.extra.begin(), options.extra.end());
    for (ExprId id : ir::reachable(attention.dag, roots)) facts_[id] = facts_of(id);
  }

  const Facts& operator[](ExprId id) const { return facts_[id]; }

  // Whether the whole expression is to be derived, rather than parts of it.
  bool is_derived(ExprId id) const {
    const Facts& facts = facts_[id];
    if (facts.score || attention_.dag.is_constant(id)) return false;
    if (facts.axes.both_sides()) {
      return (facts.tabled && facts.table == facts.axes) || pays_as_table(id);
    }
    if (facts.vector) return true;
    if (!facts.served) return true;
    const bool varies = !(facts.axes == masks::Axes());
    return varies && facts.cost >= worth(facts.axes);
  }

  // Whether it compares wide integers of which each is of one side: it is computed of their halves.
  bool compares_halves(ExprId id) const {
    const Node& node = attention_.dag[id];
    if (ir::info(node.op).rule != ir::Rule::comparison || !is_wide(node)) return false;
    return std::ranges::none_of(node.operands, [this](ExprId operand) {
      return facts_[operand].axes.both_sides() || facts_[operand].score;
    });
  }

  // Whether reading a table of them takes a kernel less than computing them.
  bool pays_as_table(std::span<const ExprId> conditions, const masks::Axes& axes) const {
    return fits(axes) &&
           cost_in_kernel(conditions) >= kWorthReading * options_.reading.narrow_table;
  }

 private:
  Facts facts_of(ExprId id) {
    const Node& node = attention_.dag[id];
    Facts facts;
    facts.axes = masks::varying(dependence_[id], attention_.dims);
    facts.score = node.is(Op::score_);
    facts.input = node.is(Op::load_) || node.is(Op::param_);
    facts.served = is_served(id);
    facts.cost = own_cost(node, facts.axes);
    for (const ExprId operand : node.operands) {
      const Facts& other = facts_[operand];
      facts.vector |= other.vector;
      facts.table = facts.table | other.table;
      facts.tabled |= other.tabled;
      facts.score |= other.score;
      facts.input |= other.input;
      // The indices of a load that is read plainly are not computed.
      const bool read = node.is(Op::load_) && facts.served;
      if (read) continue;
      facts.served &= other.served;
      const bool read_as_one = !other.axes.row && !other.axes.column && is_derived(operand);
      facts.cost = std::min(facts.cost + (read_as_one ? kReadingOne : other.cost), kCostliest);
    }
    facts.vector |= is_vector(facts);
    if (facts.axes.both_sides() && (facts.vector || needs_table(id, facts))) {
      facts.table = facts.axes;
      facts.tabled = true;
    }
    return facts;
  }

  bool pays_as_table(ExprId id) const {
    const Node& node = attention_.dag[id];
    if (node.type == ir::Type::boolean) return pays_as_table(std::span(&id, 1), facts_[id].axes);
    return node.type == ir::Type::real && fits(facts_[id].axes) &&
           cost_in_kernel(std::span(&id, 1)) >= kWorthReading * options_.reading.table;
  }

  // Shared parts count once.
  double cost_in_kernel(std::span<const ExprId> roots) const {
    std::set<ExprId> seen(roots.begin(), roots.end());
    std::vector<ExprId> left(roots.begin(), roots.end());
    double cost = 0;
    while (!left.empty()) {
      const ExprId id = left.back();
      left.pop_back();
      const Node& node = attention_.dag[id];
      const bool plain = node.is(Op::load_) && facts_[id].served;
      const masks::Axes& axes = facts_[id].axes;
      if (!axes.both_sides() && (plain || is_derived(id))) {
        cost += reading(axes);
        continue;
      }
      cost += own_cost(node, axes);
      if (plain) continue;
      for (const ExprId operand : node.operands) {
        if (seen.insert(operand).second) left.push_back(operand);
      }
    }
    return cost;
  }

  bool needs_table(ExprId id, const Facts& facts) const {
    if (!is_served(id)) return true;
    const Node& node = attention_.dag[id];
    const bool divides = node.is(Op::floordiv_) || node.is(Op::mod_);
    return divides && node.type == ir::Type::integer && !facts.axes.batch && fits(facts.axes);
  }

  // Whether the kernel can compute the operation itself (engines/cudnn/expression.h).
  bool is_served(ExprId id) const {
    const Node& node = attention_.dag[id];
    if (is_wide(node)) return compares_halves(id);
    switch (ir::info(node.op).rule) {
      case ir::Rule::bits:
      case ir::Rule::to_int:
      case ir::Rule::truncate:
      case ir::Rule::widen:
      case ir::Rule::narrow: return false;
      case ir::Rule::selection: return node.type == ir::Type::real;
      case ir::Rule::symbol_type: return !node.is(Op::load_) || is_readable(id);
      case ir::Rule::arithmetic: return !divides_unevenly(node);
      case ir::Rule::real_function: return is_in_cudnn(node.op);
      default: return true;
    }
  }

  masks::Dependence dependence_;
  std::vector<Facts> facts_;
};

// The attention with the tensors that are derived before it, and how they are read.
class DerivedTensors {
 public:
  DerivedTensors(const ir::Attention& attention, const HoistOptions& options)
      : original_(attention), options_(options), analysis_(attention, options) {
    out_.attention = attention;
    for (const auto& tensor : attention.tensors) taken_.insert(tensor.name);
    for (const auto& param : attention.params) taken_.insert(param.name);
  }

 protected:
  // Declares a tensor for the expression and reads it at each score.
  ExprId read_derived(ExprId expression, masks::Axes axes, bool once) {
    const Node node = dag()[expression];
    DerivedTensor tensor;
    tensor.name = free_name();
    tensor.expression = expression;
    tensor.axes = readable_axes(axes);
    tensor.dtype = dtype_of(node.type, tensor.axes);
    tensor.dims = analysis_.extents_of(tensor.axes);
    tensor.once = once;
    declare(tensor, node.pos);
    const bool reals = is_float(tensor.dtype);
    const ExprId load = dag().add_symbol(Op::load_, tensor.name, ir::value_type(tensor.dtype),
                                         indices_of(tensor.axes), node.pos);
    out_.derived.push_back(std::move(tensor));
    if (node.type != ir::Type::boolean) return load;
    if (reals) return dag().add(Op::gt_, {load, dag().real(0, node.pos)}, node.pos);
    return dag().add(Op::ne_, {load, dag().integer(0, node.pos)}, node.pos);
  }

  DType dtype_of(ir::Type type, const masks::Axes& axes) const {
    if (type == ir::Type::real) return DType::f32;
    if (type == ir::Type::wide) return DType::i64;  // which no kernel of cuDNN's reads
    return type == ir::Type::boolean && axes.both_sides() ? original_.dtype : DType::i32;
  }

  // The kernel computes wrong values with an operand of a single element, or of one element per
  // batch entry and head if there is a single row.
  masks::Axes readable_axes(masks::Axes axes) const {
    if (!options_.vectors && (axes.row || axes.batch)) axes.row = axes.column = true;
    if (axes.row || axes.column) return axes;
    const bool single_row = original_.dims[Dim::Sq] == 1;
    const bool single_element = !axes.batch && !axes.head;
    if (single_element || (single_row && axes.batch && axes.head)) {
      (single_row ? axes.column : axes.row) = true;
    }
    return axes;
  }

  void declare(const DerivedTensor& derived, ir::SourcePos pos) {
    ir::CapturedTensor tensor;
    tensor.name = derived.name;
    tensor.dtype = derived.dtype;
    tensor.pos = pos;
    for (const std::int64_t extent : derived.dims) tensor.extents.push_back(dag().integer(extent));
    out_.attention.tensors.push_back(std::move(tensor));
  }

  std::vector<ExprId> indices_of(masks::Axes axes) {
    std::vector<ExprId> indices;
    if (axes.batch) indices.push_back(dag().leaf(Op::batch_));
    if (axes.head) indices.push_back(dag().leaf(Op::head_));
    if (axes.row) indices.push_back(dag().leaf(Op::row_));
    if (axes.column) indices.push_back(dag().leaf(Op::column_));
    return indices;
  }

  std::string free_name() {
    std::string name;
    do {
      name = fmt::format("derived_{}", next_++);
    } while (taken_.contains(name));
    return name;
  }

  Status check_bytes() const {
    double bytes = 0;
    for (const DerivedTensor& tensor : out_.derived) {
      const double own = bytes_of(tensor.dims, static_cast<double>(size_of(tensor.dtype)));
      bytes += own;
      if (bytes <= static_cast<double>(options_.most_bytes)) continue;
      const ir::SourcePos pos = out_.attention.dag[tensor.expression].pos;
      const support::Excess words =
          support::excess(bytes, static_cast<double>(options_.most_bytes));
      return Error{
          ErrorCode::unsupported,
          fmt::format("cuDNN's kernels cannot evaluate `{}`, and materializing it takes {:.1f} GB",
                      as_written(out_.attention, tensor.expression), own / 1e9),
          {fmt::format("with it, derived tensors take {}; the limit is {}", words.amount,
                       words.most)},
          fmt::format(R"({{"line": {}, "column": {}}})", pos.line, pos.column)};
    }
    return {};
  }

  ir::Dag& dag() { return out_.attention.dag; }

  const ir::Attention& original_;
  const HoistOptions& options_;
  HoistAnalysis analysis_;
  Hoisted out_;
  std::set<std::string> taken_;
  int next_ = 0;
};

// The masks that one table serves: all that vary with no more than it does, if a table is needed,
// or if one table of all of them pays.
std::vector<ExprId> masks_of_table(const HoistAnalysis& analysis,
                                   const std::vector<ExprId>& masks) {
  masks::Axes must, may;
  std::vector<ExprId> free;
  for (const ExprId mask : masks) {
    const Facts& facts = analysis[mask];
    if (facts.score) continue;
    free.push_back(mask);
    may = may | facts.axes;
    if (facts.axes.both_sides() && analysis.is_derived(mask)) must = must | facts.axes;
  }
  const bool pays = may.both_sides() && analysis.pays_as_table(free, may);
  const masks::Axes axes = must.both_sides() || !pays ? must : may;
  if (!axes.both_sides() || !analysis.fits(axes)) return {};
  std::erase_if(free, [&](ExprId mask) { return !((analysis[mask].axes | axes) == axes); });
  return free;
}

std::vector<ExprId> of_same_axes(const HoistAnalysis& analysis, ExprId first,
                                 const std::vector<ExprId>& masks) {
  std::vector<ExprId> same;
  for (const ExprId mask : masks) {
    if (analysis.is_derived(mask) && analysis[mask].axes == analysis[first].axes) {
      same.push_back(mask);
    }
  }
  return same;
}

class Hoister : private DerivedTensors {
 public:
  Hoister(const ir::Attention& attention, const HoistOptions& options,
          const target::Context& context)
      : DerivedTensors(attention, options), mask_(masks::analyzed(attention, context)) {}

  Result<Hoisted> run() && {
    out_.attention.score = rewritten(original_.score);
    rewrite_masks();
    if (original_.sink) out_.attention.sink = rewritten_sink(*original_.sink);
    if (original_.dropout && original_.dropout->keep) {
      out_.attention.dropout->keep = rewritten(*original_.dropout->keep);
    }
    for (const ExprId id : options_.extra) out_.extra.push_back(rewritten(id));
    ATTN_RETURN_IF_ERROR(check_bytes());
    return std::move(out_);
  }

 private:
  // Masks that are derived as a whole become one per set of axes, in the place of the first.
  void rewrite_masks() {
    const std::vector<ExprId>& residual = mask_->form().residual;
    const std::set<ExprId> may_change(residual.begin(), residual.end());
    const std::vector<ExprId> table = masks_of_table(analysis_, residual);
    std::vector<ExprId>& masks = out_.attention.masks;
    masks.clear();
    std::set<ExprId> merged;
    for (const ExprId mask : original_.masks) {
      if (merged.contains(mask)) continue;
      if (!may_change.contains(mask)) {
        masks.push_back(mask);
      } else if (std::ranges::find(table, mask) != table.end()) {
        masks.push_back(derive_masks(table, merged));
      } else if (analysis_.is_derived(mask)) {
        masks.push_back(derive_masks(of_same_axes(analysis_, mask, residual), merged));
      } else {
        masks.push_back(rewritten(mask));
      }
    }
  }

  ExprId derive_masks(const std::vector<ExprId>& masks, std::set<ExprId>& merged) {
    ExprId all = masks.front();
    masks::Axes axes;
    bool input = false;
    for (const ExprId mask : masks) {
      if (mask != all) all = dag().add(Op::and_, {all, mask}, dag()[masks.front()].pos);
      axes = axes | analysis_[mask].axes;
      input |= analysis_[mask].input;
      merged.insert(mask);
    }
    return read_derived(all, axes, !input);
  }

  // The kernel reads one f32 value per head from a tensor.
  ExprId rewritten_sink(ExprId id) {
    const Node& node = original_.dag[id];
    const bool by_head = node.is(Op::load_) && analysis_[id].served && node.operands.size() == 1 &&
                         original_.dag[node.operands[0]].is(Op::head_);
    const bool taken =
        by_head && original_.find_tensor(original_.dag.symbol_of(id))->dtype == DType::f32;
    return taken ? id : read_derived(id, {.head = true}, !analysis_[id].input);
  }

  ExprId rewritten(ExprId id) {
    if (const auto known = rewritten_.find(id); known != rewritten_.end()) return known->second;
    const Facts& facts = analysis_[id];
    const ExprId made = analysis_.is_derived(id) ? read_derived(id, facts.axes, !facts.input)
                                                 : with_rewritten_operands(id);
    rewritten_.emplace(id, made);
    return made;
  }

  ExprId with_rewritten_operands(ExprId id) {
    const Node node = original_.dag[id];
    // A plain load keeps its indices.
    if (node.is(Op::load_) && analysis_[id].served) return id;
    if (analysis_.compares_halves(id)) return of_halves(node);
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(rewritten(operand));
    if (operands == node.operands) return id;
    return dag().add_like(node, operands);
  }

  // A comparison of 64-bit integers as one of their upper and lower halves, which are derived.
  ExprId of_halves(const Node& node) {
    const ExprId x = node.operands[0], y = node.operands[1];
    const auto compared = [&](Op op, ExprId (Hoister::*of)(ExprId)) {
      return dag().add(op, {(this->*of)(x), (this->*of)(y)}, node.pos);
    };
    const bool differs = node.is(Op::ne_);
    if (differs || node.is(Op::eq_)) {
      return dag().add(differs ? Op::or_ : Op::and_,
                       {compared(node.op, &Hoister::upper), compared(node.op, &Hoister::lower)},
                       node.pos);
    }
    const bool greater = node.is(Op::gt_) || node.is(Op::ge_);
    const ExprId decided = compared(greater ? Op::gt_ : Op::lt_, &Hoister::upper);
    const ExprId same = compared(Op::eq_, &Hoister::upper);
    const ExprId rest = compared(node.op, &Hoister::lower);
    return dag().add(Op::or_, {decided, dag().add(Op::and_, {same, rest}, node.pos)}, node.pos);
  }

  ExprId upper(ExprId wide) {
    const ir::SourcePos pos = dag()[wide].pos;
    const ExprId shifted = dag().add(Op::shift_right_, {wide, dag().wide(32, pos)}, pos);
    return half(wide, dag().add(Op::narrow_, {shifted}, pos));
  }

  // Has the order of numbers without a sign.
  ExprId lower(ExprId wide) {
    const ir::SourcePos pos = dag()[wide].pos;
    const ExprId top = dag().add(Op::shift_left_, {wide, dag().wide(32, pos)}, pos);
    const ExprId low = dag().add(Op::shift_right_, {top, dag().wide(32, pos)}, pos);
    const ExprId narrow = dag().add(Op::narrow_, {low}, pos);
    return half(wide, dag().add(Op::bit_xor_, {narrow, dag().integer(INT32_MIN, pos)}, pos));
  }

  ExprId half(ExprId wide, ExprId expression) {
    if (const auto known = rewritten_.find(expression); known != rewritten_.end())
      return known->second;
    const Facts& facts = analysis_[wide];
    const ExprId made = read_derived(expression, facts.axes, !facts.input);
    rewritten_.emplace(expression, made);
    return made;
  }

  masks::Analyzed mask_;
  std::map<ExprId, ExprId> rewritten_;
};

}  // namespace

Result<Hoisted> hoist(const ir::Attention& attention, const HoistOptions& options,
                      const target::Context& context) {
  return Hoister(attention, options, context).run();
}

}  // namespace attn::rewrite
