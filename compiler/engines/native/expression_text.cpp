#include "compiler/engines/native/expression_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "compiler/engines/native/scoring.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/ir/text.h"
#include "compiler/masks/axes.h"

namespace attn::engines::native {
namespace {

using codegen::ExpressionWriter;
using ir::Dim;
using ir::ExprId;
using ir::Op;

void add_tensor(const ir::Attention& attention, std::string_view name, const char* type,
                codegen::KernelInputs& inputs) {
  const auto is_it = [&](const plan::OperandSource& source) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&source);
    return tensor != nullptr && tensor->name == name;
  };
  if (!attention.find_tensor(name) || std::ranges::any_of(inputs.operands, is_it)) return;
  inputs.operands.emplace_back(plan::TensorOperand{std::string(name)});
  inputs.parameters.push_back(fmt::format("const {}* t_{}", type, name));
}

void add_random_controls(codegen::KernelInputs& inputs) {
  for (const char* name : {kSeed, kOffset}) {
    inputs.operands.emplace_back(plan::TensorOperand{name});
    inputs.parameters.push_back(fmt::format("const long long* t_{}", name));
  }
}

// A size, or the length where it is shorter.
std::string length_method(const char* name, std::string_view lengths, bool has, std::int64_t size) {
  const std::string value =
      has ? fmt::format("::min(t_{}[b], {})", lengths, size) : std::to_string(size);
  return fmt::format("  __device__ int {}(int b) const {{ return {}; }}\n", name, value);
}

// What `all` has too, or less: only those that masks show which are padding.
std::string used_method(const char* all, const masks::Padding* padding,
                        std::optional<ExprId> masks::Padding::*length) {
  const std::string head = fmt::format("int used_{}(int b)", all);
  if (padding == nullptr || !(padding->*length))
    return fmt::format("  __device__ {} const {{ return {}(b); }}\n", head, all);
  ExpressionWriter writer(padding->attention, {}, codegen::Precision::in_single);
  writer.begin({.batch = true});
  const std::string value = writer.value(*(padding->*length));
  return method(head, writer, fmt::format("::min({}, {}(b))", value, all));
}

}  // namespace

bool reads_by_index(const ir::Attention& attention, const std::vector<ExprId>& roots,
                    const std::optional<Table>& table) {
  masks::Dependence dependence(attention.dag);
  return std::ranges::any_of(ir::reachable(attention.dag, roots), [&](ExprId id) {
    const bool copied = table && table->load == id;
    return attention.dag[id].is(Op::load_) && (dependence[id].row || dependence[id].column) &&
           !copied;
  });
}

bool is_zero(const ir::Dag& dag, ExprId id) {
  return dag[id].is(Op::const_real_) && dag.real_of(id) == 0;
}

std::string method(const std::string& head, const ExpressionWriter& writer,
                   const std::string& value) {
  return fmt::format("  __device__ {} const {{\n{}    return {};\n  }}\n", head,
                     writer.statements(4), value);
}

std::string float_literal(double value) { return ir::real_text(value) + "f"; }

std::string mask_method(const char* name, const std::vector<ExprId>& terms,
                        const std::string& parameters, ExpressionWriter& writer) {
  std::string value;
  for (const ExprId term : terms) value += (value.empty() ? "" : " && ") + writer.value(term);
  return method(fmt::format("bool {}({})", name, parameters), writer,
                value.empty() ? "true" : value);
}

std::string beyond_method(const ir::Attention& attention) {
  std::string value;
  for (const auto& [has, name, dim] : {std::tuple(attention.lengths_kv, ir::kLengthsKv, Dim::Skv),
                                       std::tuple(attention.lengths_q, ir::kLengthsQ, Dim::Sq)}) {
    if (!has) continue;
    value += fmt::format("{}kernels::is_beyond(t_{}, b, {})", value.empty() ? "" : " || ", name,
                         attention.dims[dim]);
  }
  if (value.empty()) return "";
  return fmt::format("  __device__ bool beyond(int b) const {{ return {}; }}\n", value);
}

std::optional<masks::Padding> padding_of(const ir::Attention& attention) {
  return attention.masks.empty() ? std::nullopt : masks::padding(attention, {});
}

std::string lengths_text(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  const std::optional<masks::Padding> found = padding_of(attention);
  const masks::Padding* padding = found ? &*found : nullptr;
  return length_method("keys", ir::kLengthsKv, attention.lengths_kv, d[Dim::Skv]) +
         length_method("queries", ir::kLengthsQ, attention.lengths_q, d[Dim::Sq]) +
         used_method("keys", padding, &masks::Padding::columns) +
         used_method("queries", padding, &masks::Padding::rows);
}

double kept_scale(const ir::Attention& attention) {
  return attention.dropout ? 1 / (1 - attention.dropout->exact_probability()) : 1;
}

std::string keep_method(const ir::Attention& attention, const std::string& parameters,
                        ExpressionWriter& writer) {
  const std::string value = writer.value(*attention.dropout->keep);
  return method("bool keep(" + parameters + ")", writer, value);
}

std::string random_text(const ir::Attention& attention, ExpressionWriter& writer) {
  const auto& origin = attention.dropout->origin;
  std::string text = fmt::format(
      "  static constexpr int kDropped = {};\n"
      "  static constexpr bool kIsPart = {};\n"
      "  __device__ const long long* seed() const {{ return t_{}; }}\n"
      "  __device__ const long long* offset() const {{ return t_{}; }}\n",
      attention.dropout->dropped(), origin.has_value(), kSeed, kOffset);
  if (!origin) return text;
  const auto add = [&](const char* head, masks::Axes axes, ExprId id) {
    writer.begin(axes);
    const std::string value = writer.value(id);
    text += method(head, writer, value);
  };
  add("int drawn_head(int h)", {.head = true}, origin->head);
  add("int drawn_row(int row)", {.row = true}, origin->row);
  add("int drawn_column(int column)", {.column = true}, origin->column);
  return text;
}

void add_controls(const ir::Attention& attention, codegen::KernelInputs& inputs, bool scales) {
  if (attention.lengths_q) add_tensor(attention, ir::kLengthsQ, "int", inputs);
  if (attention.lengths_kv) add_tensor(attention, ir::kLengthsKv, "int", inputs);
  for (const ir::Scale& scale : ir::kScales) {
    if (scales && attention.has(scale) && !scale.backward)
      add_tensor(attention, scale.name, "float", inputs);
  }
  if (attention.is_random()) add_random_controls(inputs);
}

void set_scaled_score(const ir::Attention& attention, ExprId root, ExpressionWriter& writer) {
  const bool has_scale = attention.quantize.has_value();
  writer.set_score(has_scale ? "product" : "product * " + writer.value(attention.scale));
  const auto scale = has_scale ? std::optional(1.0) : positive_scale(attention);
  if (!scale) return;
  const ir::Dag& dag = attention.dag;
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    const ir::Node& node = dag[id];
    if (!node.is(Op::mul_) && !node.is(Op::div_)) continue;
    const ExprId x = node.operands[0], y = node.operands[1];
    if (!dag[x].is(Op::score_) || !dag[y].is(Op::const_real_)) continue;
    const double factor = node.is(Op::mul_) ? dag.real_of(y) : 1 / dag.real_of(y);
    // Neither may a factor become 0: a hidden product is -inf.
    const auto whole = static_cast<float>(std::abs(*scale * factor));
    if (!std::isfinite(whole) || whole < std::numeric_limits<float>::min()) continue;
    writer.set_value(id, fmt::format("(product * {})", float_literal(*scale * factor)));
  }
}

}  // namespace attn::engines::native
