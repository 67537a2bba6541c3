// Random attentions whose expressions use every op, over the constants that matter to rewrites.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::ir::testing {

// Dims B 2, Hq 4, Hkv 2, Sq 6, Dqk = Dv 8; a param p: f32, tensors t: f32[Hq], n: i32[Skv] and
// keep: bool[Skv]. Equal seeds give equal attentions. Always valid.
class RandomAttention {
 public:
  RandomAttention(unsigned seed, std::int64_t columns) : random_(seed) {
    attention_.name = "random";
    const std::int64_t sizes[] = {2, 4, 2, 6, columns, 8, 8};
    for (std::size_t i = 0; i < kDims.size(); ++i) attention_.dims.set(kDims[i], sizes[i]);
    for (const char* name : {"q", "k", "v", "o"}) attention_.layouts[name] = Layout{};
    attention_.scale = attention_.dag.real(0.5);
    attention_.score = attention_.dag.leaf(Op::score_);
    Dag& dag = attention_.dag;
    attention_.params = {{"p", DType::f32, {}}};
    attention_.tensors = {{"t", DType::f32, {dag.dim("Hq")}, {}},
                          {"n", DType::i32, {dag.dim("Skv")}, {}},
                          {"keep", DType::boolean, {dag.dim("Skv")}, {}}};
  }

  Attention make() && {
    leaves();
    const ExprId score = attention_.score;
    for (int i = 1 + pick(8); i > 0; --i) add_random();
    attention_.score = root();
    for (int i = pick(4) - 1; i > 0; --i) {
      const ExprId mask = any_of(Type::boolean);
      if (!depends_on(mask, score)) attention_.masks.push_back(mask);
    }
    return std::move(attention_);
  }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  ExprId any_of(Type type) {
    const auto& list = by_type_[static_cast<std::size_t>(type)];
    // One of the last, which are the deepest, or any; the constants come first.
    const int size = static_cast<int>(list.size());
    const int places[] = {size - 1 - pick(2), pick(size), pick(std::min(size, 8))};
    return list[static_cast<std::size_t>(places[pick(3)])];
  }

  void add(ExprId id) { by_type_[static_cast<std::size_t>(attention_.dag[id].type)].push_back(id); }

  void leaves() {
    Dag& dag = attention_.dag;
    for (bool value : {false, true}) add(dag.boolean(value));
    for (std::int64_t value : {0, 1, 2, -3, 1 << 30}) add(dag.integer(value));
    for (std::int64_t value : {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1} << 40, INT64_MIN})
      add(dag.wide(value));
    const double infinity = std::numeric_limits<double>::infinity();
    for (double value : {0.0, -0.0, 1.0, 2.0, 2.5, infinity, -infinity}) add(dag.real(value));
    for (Op op : {Op::score_, Op::batch_, Op::head_, Op::row_, Op::column_}) add(dag.leaf(op));
    add(dag.dim("Skv"));
    add(dag.add_symbol(Op::param_, "p", Type::real));
    const ExprId column[] = {dag.leaf(Op::column_)};
    add(dag.add_symbol(Op::load_, "n", Type::integer, column));
    add(dag.add_symbol(Op::load_, "keep", Type::boolean, column));
  }

  void add_random() {
    const Op op = all_ops()[static_cast<std::size_t>(pick(static_cast<int>(all_ops().size())))];
    const OpInfo& row = info(op);
    if (op == Op::load_) {
      const ExprId index[] = {any_of(Type::integer)};
      return add(attention_.dag.add_symbol(op, "t", Type::real, index));
    }
    if (row.operands <= 0) return;
    add(attention_.dag.add(op, operands(row)));
  }

  std::vector<ExprId> operands(const OpInfo& row) {
    const Type integer = pick(2) == 0 ? Type::integer : Type::wide;
    const Type number = pick(2) == 0 ? integer : Type::real;
    const auto of = [&](Type type) {
      std::vector<ExprId> ids;
      for (int i = 0; i < row.operands; ++i) ids.push_back(any_of(type));
      return ids;
    };
    switch (row.rule) {
      case Rule::real_function:
      case Rule::truncate: return of(Type::real);
      case Rule::logic:
      case Rule::to_int: return of(Type::boolean);
      case Rule::bits: return of(integer);
      case Rule::widen: return of(Type::integer);
      case Rule::narrow: return of(Type::wide);
      case Rule::to_real: return of(pick(2) == 0 ? integer : Type::boolean);
      case Rule::selection: {
        const Type type = static_cast<Type>(pick(4));
        return {any_of(Type::boolean), any_of(type), any_of(type)};
      }
      default: return of(number);
    }
  }

  // The last one half of the time.
  ExprId root() {
    const ExprId last = static_cast<ExprId>(attention_.dag.size() - 1);
    const ExprId id = pick(2) == 0 ? last : any_of(static_cast<Type>(pick(4)));
    return attention_.dag[id].type == Type::real ? id : attention_.dag.add(Op::to_real_, {id});
  }

  bool depends_on(ExprId root, ExprId leaf) {
    const ExprId roots[] = {root};
    const auto ids = reachable(attention_.dag, roots);
    return std::find(ids.begin(), ids.end(), leaf) != ids.end();
  }

  std::mt19937 random_;
  Attention attention_;
  std::array<std::vector<ExprId>, 4> by_type_;
};

}  // namespace attn::ir::testing
