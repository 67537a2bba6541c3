#include "compiler/sharding/part_attention.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "compiler/masks_of_values/cells.h"
#include "compiler/rewrite/pass.h"
#include "compiler/rewrite/rebuild.h"

namespace attn::sharding {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;
using rewrite::SimplifyingBuilder;

bool is_whole(const Intervals& set, std::int64_t size) {
  return set.size() == 1 && set.front() == Interval{0, size};
}

// Nodes in the order in which roots need them: attentions that mean the same are equal, however
// they were made.
ir::Attention in_order_of_use(const ir::Attention& from) {
  ir::Attention to = from;
  to.dag = {};
  std::map<ExprId, ExprId> ids;
  const auto copied = [&](const auto& self, ExprId id) -> ExprId {
    if (const auto found = ids.find(id); found != ids.end()) return found->second;
    const ir::Node& node = from.dag[id];
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(self(self, operand));
    return ids[id] = to.dag.add_like(node, operands);
  };
  for (ExprId* place : to.root_places()) *place = copied(copied, *place);
  return to;
}

// The indices of a part, as expressions of those of the whole.
class PartIndices {
 public:
  PartIndices(const ir::Attention& whole, const Part& part, Interval key_heads)
      : whole_(whole),
        part_(part),
        key_heads_(key_heads),
        has_all_(is_whole(part.rows, whole.dims[Dim::Sq]) &&
                 is_whole(part.keys, whole.dims[Dim::Skv])),
        has_all_heads_(key_heads == Interval{0, whole.dims[Dim::Hkv]}) {}

 protected:
  // An index, or the difference of two, and a constant.
  struct Sum {
    std::optional<ExprId> of;
    std::int64_t more = 0;
    bool is_index = false, is_difference = false;
    std::int64_t least = 0, most = 0;  // of these
    bool fits(std::int64_t by) const { return fits_integer(least + by) && fits_integer(most + by); }
  };

  void name_numbers(const ir::Attention& attention) {
    if (part_.rows.size() > kMostPieces) rows_name_ = attention.unused_name("row_numbers");
    if (part_.keys.size() > kMostPieces) keys_name_ = attention.unused_name("key_numbers");
  }

  // The attention with the indices of the whole one.
  ir::Attention replaced(const ir::Attention& from) {
    return rewrite::rebuilt(from, [&](SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
                                      const std::vector<ExprId>& operands) {
      const ir::Node& node = from.dag[id];
      std::optional<ExprId> made;
      if (node.is(Op::row_)) {
        made = number(part_.rows, rows_name_, Op::row_, builder, dag);
      } else if (node.is(Op::column_)) {
        made = number(part_.keys, keys_name_, Op::column_, builder, dag);
      } else if (node.is(Op::head_)) {
        const std::int64_t first = key_heads_.begin * whole_.dims[Dim::Hq] / whole_.dims[Dim::Hkv];
        made = shifted(Op::head_, first, builder, dag);
      } else if (node.is(Op::dim_)) {
        made = dag.integer(*ir::fold_integer(from.dag, id, from.dims), node.pos);
      } else if (node.is(Op::load_)) {
        const auto name = made_.renamed.find(from.dag.symbol_of(id));
        if (name != made_.renamed.end())
          made = dag.add_symbol(Op::load_, name->second, node.type, operands, node.pos);
      } else if (node.is(Op::add_) || node.is(Op::sub_) ||
                 ir::info(node.op).rule == ir::Rule::comparison) {
        made = without_common(node, operands, builder, dag);
      }
      return made;
    });
  }

  static bool fits_integer(std::int64_t number) { return std::abs(number) < std::int64_t{1} << 31; }

  Sum sum_of(const ir::Dag& dag, ExprId id) const {
    Sum sum{id};
    if (dag[id].is(Op::const_int_)) return {std::nullopt, dag.integer_of(id)};
    if (dag[id].is(Op::add_) && dag[dag[id].operands[1]].is(Op::const_int_))
      sum = {dag[id].operands[0], dag.integer_of(dag[id].operands[1])};
    const auto is_leaf = [&](ExprId leaf) {
      return dag[leaf].is(Op::row_) || dag[leaf].is(Op::column_);
    };
    const auto last = [&](ExprId leaf) {
      return count(dag[leaf].is(Op::row_) ? part_.rows : part_.keys) - 1;
    };
    const ir::Node& of = dag[*sum.of];
    sum.is_index = is_leaf(*sum.of);
    sum.is_difference = of.is(Op::sub_) && is_leaf(of.operands[0]) && is_leaf(of.operands[1]);
    if (sum.is_index) sum.most = last(*sum.of);
    if (sum.is_difference) sum.least = -last(of.operands[1]), sum.most = last(of.operands[0]);
    return sum;
  }

  // q_idx + 512 >= kv_idx + 512 as q_idx >= kv_idx, and q_idx + 512 - (kv_idx + 128) as q_idx -
  // kv_idx + 384: parts that see the same of a window are the same attention, and share a plan.
  // Sums and differences that wrap around are the same; what is compared must not.
  std::optional<ExprId> without_common(const ir::Node& node, const std::vector<ExprId>& operands,
                                       SimplifyingBuilder& builder, ir::Dag& dag) const {
    const Sum x = sum_of(dag, operands[0]), y = sum_of(dag, operands[1]);
    if (x.more == 0 && y.more == 0) return std::nullopt;
    const auto plus = [&](ExprId id, std::int64_t by) {
      return by == 0 ? id : builder.make(Op::add_, {id, dag.integer(by)}, node.pos);
    };
    if (node.is(Op::add_)) {
      const bool is_sum = (x.is_index || x.is_difference) && !y.of && fits_integer(x.more + y.more);
      return is_sum ? std::optional(plus(*x.of, x.more + y.more)) : std::nullopt;
    }
    const std::int64_t more = x.more - y.more;
    if (!fits_integer(more)) return std::nullopt;
    if (node.is(Op::sub_)) {
      if (x.is_index && y.is_index)
        return plus(builder.make(Op::sub_, {*x.of, *y.of}, node.pos), more);
      if ((x.is_index || x.is_difference) && !y.of) return plus(*x.of, more);
      return std::nullopt;
    }
    if (!x.fits(x.more) || !y.fits(y.more)) return std::nullopt;
    if (x.is_index && y.is_index) {
      const std::int64_t left = std::max<std::int64_t>(more, 0), right = left - more;
      if (!x.fits(left) || !y.fits(right)) return std::nullopt;
      return builder.make(node.op, {plus(*x.of, left), plus(*y.of, right)}, node.pos);
    }
    if (x.is_difference && !y.of)
      return builder.make(node.op, {*x.of, dag.integer(-more)}, node.pos);
    if (y.is_difference && !x.of)
      return builder.make(node.op, {dag.integer(more), *y.of}, node.pos);
    return std::nullopt;
  }

  static ExprId shifted(Op leaf, std::int64_t by, SimplifyingBuilder& builder, ir::Dag& dag) {
    return builder.make(Op::add_, {dag.leaf(leaf), dag.integer(by)}, {});
  }

  // The number of the row or key at this place of the part.
  static ExprId number(const Intervals& set, const std::string& tensor, Op leaf,
                       SimplifyingBuilder& builder, ir::Dag& dag) {
    if (!tensor.empty()) {
      const ExprId place = dag.leaf(leaf);
      return dag.add_symbol(Op::load_, tensor, ir::Type::integer, std::span(&place, 1));
    }
    std::int64_t before = count(set) - set.back().size();
    ExprId number = shifted(leaf, set.back().begin - before, builder, dag);
    for (std::size_t i = set.size() - 1; i-- > 0;) {
      const ExprId is_below = builder.make(Op::lt_, {dag.leaf(leaf), dag.integer(before)}, {});
      before -= set[i].size();
      number = builder.make(
          Op::select_, {is_below, shifted(leaf, set[i].begin - before, builder, dag), number}, {});
    }
    return number;
  }

  const ir::Attention& whole_;
  const Part& part_;
  const Interval key_heads_;
  const bool has_all_;  // rows and keys
  const bool has_all_heads_;
  std::string rows_name_, keys_name_;  // empty: the numbers are expressions
  PartAttention made_;
};

class Making : private PartIndices {
 public:
  using PartIndices::PartIndices;

  PartAttention run() {
    ir::Attention start = whole_;
    const bool has_keys = is_whole(part_.keys, whole_.dims[Dim::Skv]);
    start.partial = !start.is_pointwise() && !(has_keys && (part_.sink || !start.sink));
    if (!part_.sink) start.sink.reset();
    if (!has_all_) hide_by_masks(start);
    if (start.is_random() && !(has_all_ && has_all_heads_)) {
      ir::Dag& dag = start.dag;
      start.dropout->origin = {dag.leaf(Op::head_), dag.leaf(Op::row_), dag.leaf(Op::column_)};
    }
    name_numbers(start);
    made_.attention = replaced(start);
    set_form();
    drop_unused();
    made_.attention = in_order_of_use(rewrite::run_pass("ranges", made_.attention));
    return std::move(made_);
  }

 private:
  // Lengths as masks of tensors that no longer stand for lengths.
  void hide_by_masks(ir::Attention& attention) {
    attention = masks_of_values::with_lengths_as_masks(std::move(attention));
    attention.lengths_q = attention.lengths_kv = false;
    for (ir::CapturedTensor& tensor : attention.tensors) {
      if (tensor.name != ir::kLengthsQ && tensor.name != ir::kLengthsKv) continue;
      const std::string name = attention.unused_name("whole_" + tensor.name);
      made_.renamed[tensor.name] = name;
    }
    for (ir::CapturedTensor& tensor : attention.tensors) {
      if (const auto found = made_.renamed.find(tensor.name); found != made_.renamed.end())
        tensor.name = found->second;
    }
  }

  void set_form() {
    ir::Attention& attention = made_.attention;
    const std::int64_t heads = key_heads_.size();
    attention.dims.set(Dim::Hq, heads * whole_.dims[Dim::Hq] / whole_.dims[Dim::Hkv]);
    attention.dims.set(Dim::Hkv, heads);
    attention.dims.set(Dim::Sq, count(part_.rows));
    attention.dims.set(Dim::Skv, count(part_.keys));
    attention.align = ir::Align::top_left;
    for (auto& [name, layout] : attention.layouts) layout = {};
    add_numbers(rows_name_, ranks::Divided::rows, part_.rows);
    add_numbers(keys_name_, ranks::Divided::keys, part_.keys);
    attention.wants_o = true;
    attention.wants_lse = !attention.is_pointwise();
    // Sums of exponentials are merged by their maxima.
    attention.wants_max |= attention.wants_sum_exp;
    attention.wants_max_with_sink |= attention.wants_sum_exp_with_sink;
    if (attention.sink) return;
    without_sink("max_with_sink", attention.wants_max_with_sink, "max", attention.wants_max);
    without_sink("sum_exp_with_sink", attention.wants_sum_exp_with_sink, "sum_exp",
                 attention.wants_sum_exp);
    without_sink("lse_without_sink", attention.wants_lse_without_sink, "lse", attention.wants_lse);
  }

  void without_sink(const char* name, bool& wanted, const char* instead, bool& wants_instead) {
    if (!wanted) return;
    made_.renamed[name] = instead;
    wants_instead = true;
    wanted = false;
  }

  void add_numbers(const std::string& name, ranks::Divided of, const Intervals& set) {
    if (name.empty()) return;
    ir::Attention& attention = made_.attention;
    ir::CapturedTensor tensor{name, DType::i32, {attention.dag.integer(count(set))}, {}};
    tensor.monotone = true;
    attention.tensors.push_back(std::move(tensor));
    made_.numbers[name] = {of, numbers(set)};
  }

  // Tensors that only the sink of another part reads, or lengths.
  void drop_unused() {
    ir::Attention& attention = made_.attention;
    std::set<std::string, std::less<>> read;
    for (const ExprId id : ir::reachable(attention.dag, attention.roots())) {
      if (attention.dag[id].is(Op::load_)) read.insert(attention.dag.symbol_of(id));
    }
    const auto is_unread = [&](const std::string& name) { return !read.contains(name); };
    std::erase_if(attention.tensors, [&](const ir::CapturedTensor& tensor) {
      const bool of_lengths = (tensor.name == ir::kLengthsQ && attention.lengths_q) ||
                              (tensor.name == ir::kLengthsKv && attention.lengths_kv);
      return !of_lengths && is_unread(tensor.name);
    });
    const bool trains = !attention.gradients.empty();
    std::erase_if(attention.gradients, [&](const std::string& name) {
      return name != "q" && name != "k" && name != "v" && is_unread(name);
    });
    // No gradients would be all of them. Nothing reads dv, which takes least.
    if (trains && attention.gradients.empty()) attention.gradients = {"v"};
  }
};

}  // namespace

PartAttention part_attention(const ir::Attention& whole, const Part& part, Interval key_heads) {
  return Making(whole, part, key_heads).run();
}

}  // namespace attn::sharding
