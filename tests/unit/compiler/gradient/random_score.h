// Random scores over every operation with a derivative, inside the domain of each.
#pragma once

#include <random>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/ir/real_function.h"
#include "tests/unit/compiler/masks/example.h"

namespace attn::gradient::testing {

// B 2, Hq 4, Sq 6; learned tensors t: f32[Hq] and u: f32[Skv], a param p: f32. Equal seeds give
// equal attentions.
class RandomScore {
 public:
  RandomScore(unsigned seed, std::int64_t columns)
      : random_(seed), attention_(masks::testing::example(6, columns)), dag_(attention_.dag) {
    attention_.params = {{"p", DType::f32, {}}};
    attention_.tensors = {{"t", DType::f32, {dag_.dim("Hq")}, {}, true},
                          {"u", DType::f32, {dag_.dim("Skv")}, {}, true}};
  }

  ir::Attention make() && {
    attention_.score = real(1 + pick(4));
    return std::move(attention_);
  }

 private:
  using ExprId = ir::ExprId;
  using Op = ir::Op;

  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  ExprId one_of(std::initializer_list<Op> ops, ExprId x) {
    return dag_.add(ops.begin()[pick(static_cast<int>(ops.size()))], {x});
  }
  ExprId constant() { return dag_.real(std::uniform_real_distribution<double>(-2, 2)(random_)); }
  ExprId load(const char* tensor, ExprId index) {
    const ExprId indexes[] = {index};
    return dag_.add_symbol(Op::load_, tensor, ir::Type::real, indexes);
  }

  ExprId leaf() {
    const ExprId column = dag_.leaf(Op::column_);
    switch (pick(9)) {
      case 0: return constant();
      case 1: return load("t", dag_.leaf(Op::head_));
      case 2: return load("t", dag_.add(Op::mod_, {column, dag_.integer(4)}));
      case 3: return load("u", column);
      case 4: return dag_.add_symbol(Op::param_, "p", ir::Type::real);
      case 5: return dag_.add(Op::div_, {sum(dag_.add(Op::to_real_, {column}), 0.3), dag_.real(8)});
      default: return dag_.leaf(Op::score_);
    }
  }

  ExprId sum(ExprId x, double y) { return dag_.add(Op::add_, {x, dag_.real(y)}); }
  ExprId positive(ExprId x) { return sum(dag_.add(Op::mul_, {x, x}), 0.5); }
  // From -2 to 2.
  ExprId bounded(ExprId x) { return dag_.add(Op::mul_, {dag_.real(2), dag_.add(Op::tanh_, {x})}); }

  ExprId real(int depth) {
    if (depth == 0) return leaf();
    const ExprId x = real(depth - 1);
    switch (pick(16)) {
      case 0: return one_of({Op::exp_, Op::exp2_}, bounded(x));
      case 1: return one_of({Op::log_, Op::log2_, Op::sqrt_, Op::rsqrt_}, positive(x));
      case 2: return one_of({Op::tanh_, Op::sigmoid_, Op::erf_}, x);
      case 3: return one_of({Op::sin_, Op::cos_, Op::neg_, Op::abs_}, x);
      case 4: return dag_.add(Op::tan_, {dag_.add(Op::mul_, {dag_.real(0.5), bounded(x)})});
      case 5: return dag_.add(Op::pow_, {positive(bounded(x)), pick(2) == 0 ? constant() : leaf()});
      case 6: return dag_.add(Op::pow_, {x, dag_.real(1 + pick(3))});
      case 7: return dag_.add(Op::mod_, {x, positive(real(depth - 1))});
      case 8: return dag_.add(Op::add_, {one_of({Op::floor_, Op::ceil_}, x), x});
      case 9: return softplus(x);
      case 10:
      case 11: return any_function(x, depth);
      default: return binary(x, real(depth - 1));
    }
  }

  // A function of numbers around 1, for which every function has derivatives.
  ExprId any_function(ExprId x, int depth) {
    const std::span<const ir::RealFunction> all = ir::real_functions();
    const Op op = all[static_cast<std::size_t>(pick(static_cast<int>(all.size())))].op;
    const auto near_one = [this](ExprId id) {
      return sum(dag_.add(Op::mul_, {dag_.real(0.2), bounded(id)}), 1);
    };
    if (ir::info(op).operands == 1) return dag_.add(op, {near_one(x)});
    return dag_.add(op, {near_one(x), near_one(real(depth - 1))});
  }

  ExprId binary(ExprId x, ExprId y) {
    switch (pick(8)) {
      case 0: return dag_.add(Op::add_, {x, y});
      case 1: return dag_.add(Op::sub_, {x, y});
      case 2: return dag_.add(Op::mul_, {x, y});
      case 3: return dag_.add(Op::mul_, {x, dag_.add(Op::sigmoid_, {x})});
      case 4: return dag_.add(Op::div_, {x, positive(y)});
      case 5: return dag_.add(pick(2) == 0 ? Op::min_ : Op::max_, {x, y});
      case 6: return dag_.add(Op::select_, {condition(x), x, y});
      default: return dag_.add(Op::select_, {condition(y), y, dag_.add(Op::log_, {positive(x)})});
    }
  }

  // On reals, or on positions.
  ExprId condition(ExprId x) {
    if (pick(2) == 0) return dag_.add(Op::gt_, {x, constant()});
    return dag_.add(Op::ge_, {dag_.leaf(Op::row_), dag_.leaf(Op::column_)});
  }

  ExprId softplus(ExprId x) {
    const ExprId decay = dag_.add(Op::exp_, {dag_.add(Op::neg_, {dag_.add(Op::abs_, {x})})});
    const ExprId tail = dag_.add(Op::log_, {dag_.add(Op::add_, {dag_.real(1), decay})});
    return dag_.add(Op::add_, {dag_.add(Op::max_, {x, dag_.real(0)}), tail});
  }

  std::mt19937 random_;
  ir::Attention attention_;
  ir::Dag& dag_;
};

}  // namespace attn::gradient::testing
