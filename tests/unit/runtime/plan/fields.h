// Visits every field of a plan. The structured bindings name all fields of a struct, so adding one
// breaks the build until it is listed here, which also decides whether a plan's signature covers
// it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace attn::plan::testing {

// Changes each field of `plan` in turn, calls `look` with its path ("program.tensors.name", the
// same for every tensor), and restores it. Vectors also lose their last element. Graphs are not
// changed: see Canonical.SeesEveryField.
class FieldWalk {
 public:
  FieldWalk(Plan& plan, std::function<void(const std::string& path)> look)
      : look_(std::move(look)) {
    visit("", plan);
  }

 private:
  void visit(const std::string& at, Plan& plan) {
    auto& [spec_name, spec_text, bindings, shape, choice, strategy, without, parts, target,
           cudnn_version, program, compiled, kernels, signature] = plan;
    visit(at + "spec_name", spec_name);
    visit(at + "spec_text", spec_text);
    change(at + "bindings", bindings, {{"changed", "1"}});
    change(at + "shape", shape, {{{Dim::B, 9}}, {Dim::Sq}});
    change(at + "choice", choice, {{"parts", 0.5}});
    visit(at + "strategy", strategy);
    visit(at + "without.", without);
    visit(at + "parts.", parts);
    visit(at + "target.", target);
    visit(at + "cudnn_version", cudnn_version);
    visit(at + "program.", program);
    visit(at + "compiled.", compiled);
    visit(at + "kernels.", kernels);
    change(at + "signature", signature, {});
  }
  void visit(const std::string& at, Target& target) {
    auto& [name, sm, device_json] = target;
    visit(at + "name", name);
    visit(at + "sm", sm);
    visit(at + "device_json", device_json);
  }
  void visit(const std::string& at, CompiledStep& step) {
    auto& [heuristic, engine, knobs, workspace_bytes, cudnn_plan] = step;
    visit(at + "heuristic", heuristic);
    visit(at + "engine", engine);
    visit(at + "knobs.", knobs);
    visit(at + "workspace_bytes", workspace_bytes);
    visit(at + "cudnn_plan", cudnn_plan);
  }
  void visit(const std::string& at, Knob& knob) {
    auto& [type, value] = knob;
    visit(at + "type", type);
    visit(at + "value", value);
  }
  void visit(const std::string& at, Program& program) {
    auto& [tensors, params, internals, steps, check] = program;
    visit(at + "tensors.", tensors);
    visit(at + "params.", params);
    visit(at + "internals.", internals);
    visit(at + "steps.", steps);
    if (!check) return;
    visit(at + "check.", *check);
    change(at + "check", check, {});
  }
  void visit(const std::string& at, TensorInfo& tensor) {
    auto& [name, role, dtype, dims, strides, alignment, addressed_by] = tensor;
    visit(at + "name", name);
    change(at + "role", role,
           role == TensorRole::captured ? TensorRole::query : TensorRole::captured);
    visit(at + "dtype", dtype);
    visit(at + "dims.", dims);
    visit(at + "strides.", strides);
    visit(at + "alignment", alignment);
    visit(at + "addressed_by", addressed_by);
  }
  void visit(const std::string& at, ParamInfo& param) {
    auto& [name, dtype] = param;
    visit(at + "name", name);
    visit(at + "dtype", dtype);
  }
  void visit(const std::string& at, Step& step) {
    std::visit([&](auto& alternative) { visit(at, alternative); }, step);
  }
  void visit(const std::string& at, CudnnStep& step) {
    auto& [graph, operands, turns] = step;
    visit(at + "turns", turns);
    change(at + "graph", graph, {});
    visit(at + "operands.", operands);
  }
  void visit(const std::string& at, Operand& operand) {
    auto& [uid, source] = operand;
    change(at + "uid", uid, graph::Uid{1000});
    visit(at + "source.", source);
  }
  void visit(const std::string& at, OperandSource& source) {
    std::visit([&](auto& alternative) { visit(at, alternative); }, source);
    change(at + "kind", source, OperandSource(IotaOperand{77}));
  }
  void visit(const std::string& at, TensorOperand& operand) {
    auto& [name, offset, advance] = operand;
    visit(at + "advance", advance);
    visit(at + "tensor", name);
    visit(at + "offset", offset);
  }
  void visit(const std::string& at, ConstantOperand& operand) {
    auto& [dtype, value] = operand;
    visit(at + "dtype", dtype);
    change(at + "value", value, value == 7.5 ? 8.5 : 7.5);
  }
  void visit(const std::string& at, ParamOperand& operand) {
    auto& [name] = operand;
    visit(at + "param", name);
  }
  void visit(const std::string& at, IotaOperand& operand) {
    auto& [count] = operand;
    visit(at + "count", count);
  }
  void visit(const std::string& at, DeriveStep& step) {
    auto& [once, outputs, expressions, inputs, source, amends, turns] = step;
    visit(at + "turns", turns);
    change(at + "once", once, !once);
    visit(at + "amends", amends);
    visit(at + "outputs.", outputs);
    for (std::string& expression : expressions) visit(at + "expressions.", expression);
    visit(at + "inputs.", inputs);
    visit(at + "source", source);
  }
  void visit(const std::string& at, KernelStep& step) {
    auto& [outputs, zeroed, launches, source, turns] = step;
    visit(at + "turns", turns);
    visit(at + "outputs.", outputs);
    visit(at + "zeroed.", zeroed);
    visit(at + "launches.", launches);
    visit(at + "source", source);
  }
  void visit(const std::string& at, Launch& launch) {
    auto& [kernel, grid, block, cluster, shared_bytes, overlaps, arguments] = launch;
    visit(at + "kernel", kernel);
    for (Extents* extents : {&grid, &block, &cluster}) visit(at + "extents", (*extents)[1]);
    visit(at + "shared_bytes", shared_bytes);
    change(at + "overlaps", overlaps, !overlaps);
    visit(at + "arguments.", arguments);
  }
  void visit(const std::string& at, KernelArgument& argument) {
    std::visit([&](auto& alternative) { visit(at, alternative); }, argument);
    change(at + "kind", argument, KernelArgument(ConstantOperand{DType::i32, 77}));
  }
  void visit(const std::string& at, TensorMapArgument& map) {
    auto& [tensor, dims, strides, box, swizzle, promotion] = map;
    visit(at + "map.", tensor);
    visit(at + "dims.", dims);
    visit(at + "strides.", strides);
    visit(at + "box.", box);
    visit(at + "swizzle", swizzle);
    visit(at + "promotion", promotion);
  }
  void visit(const std::string& at, IndexCheck& check) {
    auto& [faults, inputs, quick, scores, source] = check;
    visit(at + "faults.", faults);
    visit(at + "inputs.", inputs);
    visit(at + "quick", quick);
    visit(at + "scores.", scores);
    visit(at + "source", source);
  }
  void visit(const std::string& at, IndexCheck::Fault& fault) {
    auto& [expression, what] = fault;
    visit(at + "expression", expression);
    visit(at + "what", what);
  }

  void visit(const std::string& at, std::string& text) { change(at, text, text + "x"); }
  void visit(const std::string& at, std::int64_t& number) { change(at, number, number + 1); }
  void visit(const std::string& at, DType& dtype) {
    change(at, dtype, dtype == DType::i8 ? DType::f16 : DType::i8);
  }
  template <typename Element>
  void visit(const std::string& at, std::vector<Element>& elements) {
    for (Element& element : elements) visit(at, element);
    if (elements.empty()) return;
    change(at + "size", elements, std::vector<Element>(elements.begin(), elements.end() - 1));
  }

  template <typename Value>
  void change(const std::string& path, Value& field, Value changed) {
    std::swap(field, changed);
    look_(path);
    std::swap(field, changed);
  }

  std::function<void(const std::string&)> look_;
};

}  // namespace attn::plan::testing
