#include "compiler/passes/hoist.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/passes/band.h"
#include "compiler/passes/range.h"

namespace attn::passes {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr double kReadingOne = 2;   // an element of a tensor over batches and heads
constexpr double kCostliest = 1e9;  // shared parts are counted at each use: not without end

double bytes_of(const std::vector<std::int64_t>& dims) {
  double bytes = 4;
  for (const std::int64_t extent : dims) bytes *= static_cast<double>(extent);
  return bytes;
}

// What the analysis knows of a node.
struct Facts {
  Axes axes;            // none of extent 1
  Axes table;           // of the parts that must become a table
  bool tabled = false;  // whether there are such parts
  bool score = false;   // depends on the score
  bool input = false;   // depends on a tensor or param
  bool served = true;   // the kernel can compute all of it
  bool vector = false;  // reads a tensor over rows or the batch that the kernel cannot
  double cost = 0;      // for every score
};

}  // namespace

double cost_for_each_score(const Node& node) {
  switch (node.op) {
    case Op::const_bool_:
    case Op::const_int_:
    case Op::const_real_:
    case Op::score_:
    case Op::dim_:
    case Op::param_:
    case Op::to_real_: return 0;
    case Op::load_:
    case Op::select_: return 2;
    case Op::div_:
    case Op::sqrt_:
    case Op::rsqrt_: return 6;
    case Op::pow_: return 16;
    case Op::floordiv_:
    case Op::mod_: return node.type == ir::Type::integer ? 40 : 10;
    case Op::floor_:
    case Op::ceil_: return 1;
    default: return ir::info(node.op).rule == ir::Rule::real_function ? 8 : 1;
  }
}

namespace {

class Analysis {
 public:
  Analysis(const ir::Attention& attention, const HoistOptions& options)
      : attention_(attention),
        options_(options),
        dependence_(attention.dag),
        facts_(attention.dag.size()) {
    std::vector<ExprId> roots = attention.roots();
    roots.insert(roots.end(), options.extra.begin(), options.extra.end());
    for (ExprId id : ir::reachable(attention.dag, roots)) facts_[id] = facts_of(id);
  }

  const Facts& operator[](ExprId id) const { return facts_[id]; }

  std::vector<std::int64_t> extents_of(Axes axes) const {
    std::vector<std::int64_t> extents;
    const ir::Dims& dims = attention_.dims;
    if (axes.batch) extents.push_back(dims[Dim::B]);
    if (axes.head) extents.push_back(dims[Dim::Hq]);
    if (axes.row) extents.push_back(dims[Dim::Sq]);
    if (axes.column) extents.push_back(dims[Dim::Skv]);
    return extents;
  }

  // Whether the whole expression is to be derived, rather than parts of it.
  bool is_derived(ExprId id) const {
    const Facts& facts = facts_[id];
    if (facts.score || attention_.dag.is_constant(id)) return false;
    if (facts.axes.both_sides()) return facts.tabled && facts.table == facts.axes;
    if (facts.vector) return true;
    if (!facts.served) return true;
    const bool varies = !(facts.axes == Axes());
    return varies && facts.cost >= worth(facts.axes);
  }

 private:
  Facts facts_of(ExprId id) {
    const Node& node = attention_.dag[id];
    Facts facts;
    facts.axes = varying(dependence_[id], attention_.dims);
    facts.score = node.is(Op::score_);
    facts.input = node.is(Op::load_) || node.is(Op::param_);
    facts.served = is_served(id);
    facts.cost = cost_for_each_score(node);
    for (const ExprId operand : node.operands) {
      const Facts& other = facts_[operand];
      facts.vector |= other.vector;
      facts.table = facts.table | other.table;
      facts.tabled |= other.tabled;
      facts.score |= other.score;
      facts.input |= other.input;
      // What a load that is read plainly has for indices is read by nobody.
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

  // Whether the value is one that the kernel would read from a tensor that it cannot read.
  bool is_vector(const Facts& facts) const {
    if (options_.vectors || facts.score || facts.axes.column) return false;
    if (!facts.axes.row && !facts.axes.batch) return false;
    return facts.input || !facts.served || facts.cost >= worth(facts.axes);
  }

  double worth(const Axes& axes) const {
    return axes.row || axes.column ? options_.worth_vector : kWorthDeriving;
  }

  bool needs_table(ExprId id, const Facts& facts) const {
    if (!is_served(id)) return true;
    const Node& node = attention_.dag[id];
    const bool divides = node.is(Op::floordiv_) || node.is(Op::mod_);
    return divides && node.type == ir::Type::integer && !facts.axes.batch &&
           bytes_of(extents_of(facts.axes)) <= static_cast<double>(options_.most_table_bytes);
  }

  // Whether the kernel can compute the operation itself (lowering/expression.h).
  bool is_served(ExprId id) const {
    const Node& node = attention_.dag[id];
    switch (ir::info(node.op).rule) {
      case ir::Rule::bits:
      case ir::Rule::to_int:
      case ir::Rule::truncate: return false;
      case ir::Rule::selection: return node.type == ir::Type::real;
      case ir::Rule::symbol_type: return !node.is(Op::load_) || is_readable(id);
      case ir::Rule::arithmetic: return !divides_unevenly(node);
      default: return true;
    }
  }

  bool is_readable(ExprId load) const {
    const Status status = options_.readable(attention_, load);
    return status.ok() || status.error().code != ErrorCode::unsupported;
  }

  // Integer // and % that round otherwise than the kernel's.
  bool divides_unevenly(const Node& node) const {
    if (node.type != ir::Type::integer || (!node.is(Op::floordiv_) && !node.is(Op::mod_))) {
      return false;
    }
    return range_of(attention_, node.operands[0]).low < 0 ||
           range_of(attention_, node.operands[1]).low < 1;
  }

  const ir::Attention& attention_;
  const HoistOptions& options_;
  Dependence dependence_;
  std::vector<Facts> facts_;
};

class Hoister {
 public:
  Hoister(const ir::Attention& attention, const HoistOptions& options)
      : original_(attention), options_(options), analysis_(attention, options) {
    out_.attention = attention;
    for (const auto& tensor : attention.tensors) taken_.insert(tensor.name);
    for (const auto& param : attention.params) taken_.insert(param.name);
  }

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
  // Of those that are derived as a whole, one for each set of axes, where the first of them stood.
  void rewrite_masks() {
    const std::vector<ExprId> residual = mask_form(original_).residual;
    const std::set<ExprId> may_change(residual.begin(), residual.end());
    std::vector<ExprId>& masks = out_.attention.masks;
    masks.clear();
    std::set<ExprId> merged;
    for (const ExprId mask : original_.masks) {
      if (merged.contains(mask)) continue;
      if (!may_change.contains(mask)) {
        masks.push_back(mask);
      } else if (analysis_.is_derived(mask)) {
        masks.push_back(derive_masks(mask, residual, merged));
      } else {
        masks.push_back(rewritten(mask));
      }
    }
  }

  ExprId derive_masks(ExprId first, const std::vector<ExprId>& masks, std::set<ExprId>& merged) {
    const Facts& facts = analysis_[first];
    ExprId all = first;
    bool input = facts.input;
    for (const ExprId mask : masks) {
      if (mask == first || merged.contains(mask) || !analysis_.is_derived(mask) ||
          !(analysis_[mask].axes == facts.axes)) {
        continue;
      }
      merged.insert(mask);
      all = dag().add(Op::and_, {all, mask}, dag()[first].pos);
      input |= analysis_[mask].input;
    }
    return read_derived(all, facts.axes, !input);
  }

  // The kernel takes one f32 value a head, from a tensor.
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
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(rewritten(operand));
    if (operands == node.operands) return id;
    if (ir::info(node.op).rule == ir::Rule::symbol_type) {
      return dag().add_symbol(node.op, original_.dag.symbol_of(id), node.type, operands, node.pos);
    }
    return dag().add(node.op, operands, node.attribute, node.pos);
  }

  // Declares a tensor for the expression and reads it at each score.
  ExprId read_derived(ExprId expression, Axes axes, bool once) {
    const Node node = dag()[expression];
    DerivedTensor tensor;
    tensor.name = free_name();
    tensor.expression = expression;
    tensor.dtype = node.type == ir::Type::real ? DType::f32 : DType::i32;
    tensor.axes = readable_axes(axes);
    tensor.dims = analysis_.extents_of(tensor.axes);
    tensor.once = once;
    declare(tensor, node.pos);
    const ir::Type type = node.type == ir::Type::real ? ir::Type::real : ir::Type::integer;
    const ExprId load =
        dag().add_symbol(Op::load_, tensor.name, type, indices_of(tensor.axes), node.pos);
    out_.derived.push_back(std::move(tensor));
    if (node.type != ir::Type::boolean) return load;
    return dag().add(Op::ne_, {load, dag().integer(0, node.pos)}, node.pos);
  }

  // An operand of a single element, or of one for each batch entry and head where there is a single
  // row, is none that the kernel computes rightly with.
  Axes readable_axes(Axes axes) const {
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

  std::vector<ExprId> indices_of(Axes axes) {
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
      const double own = bytes_of(tensor.dims);
      bytes += own;
      if (bytes <= static_cast<double>(options_.most_bytes)) continue;
      const ir::SourcePos pos = out_.attention.dag[tensor.expression].pos;
      return Error{
          ErrorCode::unsupported,
          fmt::format("`{}` is no operand of cuDNN's kernels, and as a tensor of its own it "
                      "takes {:.1f} GB",
                      ir::to_source(out_.attention, tensor.expression), own / 1e9),
          {fmt::format("at most {:.1f} GB are used for all such tensors",
                       static_cast<double>(options_.most_bytes) / 1e9)},
          fmt::format(R"({{"line": {}, "column": {}}})", pos.line, pos.column)};
    }
    return {};
  }

  ir::Dag& dag() { return out_.attention.dag; }

  const ir::Attention& original_;
  const HoistOptions& options_;
  Analysis analysis_;
  Hoisted out_;
  std::map<ExprId, ExprId> rewritten_;
  std::set<std::string> taken_;
  int next_ = 0;
};

}  // namespace

Result<Hoisted> hoist(const ir::Attention& attention, const HoistOptions& options) {
  return Hoister(attention, options).run();
}

}  // namespace attn::passes
