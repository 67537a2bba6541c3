// An attention with a tensor of every element type, for the tests of this folder.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"

namespace attn::codegen::testing {

// B 2, Hq 4, Hkv 2, Sq 64, Skv 96, D 8; a param scale: f32.
struct Example {
  ir::Attention attention;

  Example() {
    attention.name = "example";
    const std::int64_t sizes[] = {2, 4, 2, 64, 96, 8, 8};
    for (std::size_t i = 0; i < ir::kDims.size(); ++i) attention.dims.set(ir::kDims[i], sizes[i]);
    for (const char* name : {"q", "k", "v", "o"}) attention.layouts[name] = ir::Layout{};
    attention.scale = attention.dag.real(0.5);
    attention.score = attention.dag.leaf(ir::Op::score_);
    attention.params = {{"scale", DType::f32, {}}};
    add("half", DType::f16, {96});
    add("brain", DType::bf16, {96});
    add("single", DType::f32, {96});
    add("full", DType::f64, {96});
    add("tiny", DType::i8, {64});
    add("byte", DType::u8, {64});
    add("word", DType::i32, {64});
    add("big", DType::i64, {64});
    add("flag", DType::boolean, {2, 4});
  }

  ir::ExprId load(const std::string& name, const std::vector<ir::ExprId>& indices) {
    const ir::Type type = ir::value_type(attention.find_tensor(name)->dtype);
    return attention.dag.add_symbol(ir::Op::load_, name, type, indices);
  }

  rewrite::DerivedTensor derived(std::string name, ir::ExprId expression, masks::Axes axes) const {
    rewrite::DerivedTensor tensor;
    tensor.name = std::move(name);
    tensor.expression = expression;
    tensor.axes = axes;
    const bool real = attention.dag[expression].type == ir::Type::real;
    tensor.dtype = real ? DType::f32 : DType::i32;
    if (axes.batch) tensor.dims.push_back(2);
    if (axes.head) tensor.dims.push_back(4);
    if (axes.row) tensor.dims.push_back(64);
    if (axes.column) tensor.dims.push_back(96);
    return tensor;
  }

 private:
  void add(std::string name, DType dtype, const std::vector<std::int64_t>& extents) {
    ir::CapturedTensor tensor;
    tensor.name = std::move(name);
    tensor.dtype = dtype;
    for (const std::int64_t extent : extents) {
      tensor.extents.push_back(attention.dag.integer(extent));
    }
    attention.tensors.push_back(std::move(tensor));
  }
};

}  // namespace attn::codegen::testing
