#include "compiler/ir/op.h"

#include <gtest/gtest.h>

namespace attn::ir {
namespace {

TEST(Op, NamesReadBack) {
  for (Op op : all_ops()) EXPECT_EQ(parse_op(info(op).name), op) << info(op).name;
  EXPECT_FALSE(parse_op("nonsense"));
}

TEST(Op, IdsArePermanent) {
  // Written into plan files and caches: a change here breaks them.
  EXPECT_EQ(info(Op::const_bool_).id, 1);
  EXPECT_EQ(info(Op::add_).id, 20);
  EXPECT_EQ(info(Op::exp_).id, 34);
  EXPECT_EQ(info(Op::and_).id, 60);
  EXPECT_EQ(info(Op::to_int_).id, 81);
}

TEST(Type, NamesReadBack) {
  for (Type type : {Type::boolean, Type::integer, Type::wide, Type::real}) {
    EXPECT_EQ(parse_type(to_string(type)), type);
  }
}

TEST(ResultType, FollowsTheRules) {
  constexpr Type kBool = Type::boolean, kInt = Type::integer, kWide = Type::wide,
                 kReal = Type::real;
  const auto type = [](Rule rule, std::initializer_list<Type> types) {
    return result_type(rule, std::span(types.begin(), types.size()));
  };
  EXPECT_EQ(type(Rule::arithmetic, {kInt, kInt}), kInt);
  EXPECT_EQ(type(Rule::arithmetic, {kReal}), kReal);
  EXPECT_EQ(type(Rule::arithmetic, {kInt, kReal}), std::nullopt);
  EXPECT_EQ(type(Rule::arithmetic, {kBool, kBool}), std::nullopt);
  EXPECT_EQ(type(Rule::real_function, {kReal}), kReal);
  EXPECT_EQ(type(Rule::real_function, {kInt}), std::nullopt);
  EXPECT_EQ(type(Rule::comparison, {kInt, kInt}), kBool);
  EXPECT_EQ(type(Rule::comparison, {kBool, kBool}), std::nullopt);
  EXPECT_EQ(type(Rule::logic, {kBool, kBool}), kBool);
  EXPECT_EQ(type(Rule::selection, {kBool, kInt, kInt}), kInt);
  EXPECT_EQ(type(Rule::selection, {kBool, kInt, kReal}), std::nullopt);
  EXPECT_EQ(type(Rule::selection, {kInt, kInt, kInt}), std::nullopt);
  EXPECT_EQ(type(Rule::bits, {kInt}), kInt);
  EXPECT_EQ(type(Rule::bits, {kWide, kWide}), kWide);
  EXPECT_EQ(type(Rule::bits, {kWide, kInt}), std::nullopt);
  EXPECT_EQ(type(Rule::bits, {kReal}), std::nullopt);
  EXPECT_EQ(type(Rule::arithmetic, {kWide, kWide}), kWide);
  EXPECT_EQ(type(Rule::arithmetic, {kWide, kInt}), std::nullopt);
  EXPECT_EQ(type(Rule::comparison, {kWide, kWide}), kBool);
  EXPECT_EQ(type(Rule::to_real, {kWide}), kReal);
  EXPECT_EQ(type(Rule::widen, {kInt}), kWide);
  EXPECT_EQ(type(Rule::widen, {kWide}), std::nullopt);
  EXPECT_EQ(type(Rule::narrow, {kWide}), kInt);
  EXPECT_EQ(type(Rule::to_real, {kBool}), kReal);
  EXPECT_EQ(type(Rule::to_real, {kReal}), std::nullopt);
  EXPECT_EQ(type(Rule::to_int, {kBool}), kInt);
  EXPECT_EQ(type(Rule::to_int, {kInt}), std::nullopt);
  EXPECT_EQ(type(Rule::truncate, {kReal}), kInt);
  EXPECT_EQ(type(Rule::truncate, {kInt}), std::nullopt);
}

}  // namespace
}  // namespace attn::ir
