#include "compiler/codegen/epilogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "compiler/codegen/check.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/row_values.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/ir/epilogue.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Op;

constexpr std::size_t kMostVectors = 4;  // each takes four registers of 32 columns, or eight
constexpr std::int64_t kVectorSize = 8;  // elements that are read together

// The loads of which a thread reads eight columns at once: the last index is the column, the others
// are of the row, and all are known to be in range.
std::vector<ExprId> vectors_of(const ir::Attention& view, const std::vector<ExprId>& roots) {
  std::vector<ExprId> found;
  for (const ExprId id : ir::reachable(view.dag, roots)) {
    const ir::Node& node = view.dag[id];
    if (!node.is(Op::load_) || found.size() == kMostVectors) continue;
    const ir::CapturedTensor& tensor = *view.find_tensor(view.dag.symbol_of(id));
    const bool is_known =
        tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f32;
    const auto width = ir::fold_integer(view.dag, tensor.extents.back());
    if (!is_known || !width || *width % kVectorSize != 0) continue;
    std::vector<ExprId> others(node.operands.begin(), node.operands.end() - 1);
    const bool varies =
        std::ranges::any_of(others, [&](ExprId each) { return varies_along(view, each); });
    const bool is_along = view.dag[node.operands.back()].is(Op::column_) && !varies;
    if (is_along && faults_of(view, {id}).empty()) found.push_back(id);
  }
  return found;
}

// Whether the expression reads a tensor that is not below one of `known`.
bool reads_beside(const ir::Attention& view, ExprId root, const std::vector<ExprId>& known) {
  std::vector<ExprId> open = {root};
  std::set<ExprId> seen(known.begin(), known.end());
  while (!open.empty()) {
    const ExprId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) continue;
    const ir::Node& node = view.dag[id];
    if (node.is(Op::load_)) return true;
    open.insert(open.end(), node.operands.begin(), node.operands.end());
  }
  return false;
}

// Whether the epilogue has sigmoids, none of which is of another one: what all are taken of is
// known before any is computed.
bool has_plain_sigmoids(const ir::Attention& view) {
  const auto are_below = [&view](const std::vector<ExprId>& roots) {
    return std::ranges::any_of(ir::reachable(view.dag, roots),
                               [&view](ExprId id) { return view.dag[id].is(Op::sigmoid_); });
  };
  bool any = false;
  for (const ExprId id : ir::reachable(view.dag, std::span(&view.score, 1))) {
    if (!view.dag[id].is(Op::sigmoid_)) continue;
    any = true;
    if (are_below(view.dag[id].operands)) return false;
  }
  return any;
}

std::string row_values_text(const ir::Attention& view, const std::vector<ExprId>& values) {
  std::string text = fmt::format("  static constexpr int kEpilogueValues = {};\n", values.size());
  if (values.empty()) return text;
  ExpressionWriter writer(view, {}, Precision::in_single);
  writer.begin({.batch = true, .head = true, .row = true});
  std::string made;
  for (std::size_t i = 0; i < values.size(); ++i)
    made += fmt::format("    values[{}] = {};\n", i, writer.value(values[i]));
  return text +
         "  __device__ void epilogue_values(int b, int h, int row, float* values) const {\n" +
         writer.statements(4) + made + "  }\n";
}

std::string row_type(DType dtype) {
  return dtype == DType::f32 ? "float" : std::string(float_class(dtype));
}

std::string case_of(const char* of, std::size_t number, const std::string& statements) {
  return fmt::format("    if constexpr ({} == {}) {{\n{}    }}\n", of, number, statements);
}

// Where rows of the vectors begin, and their types.
std::string vectors_text(const ir::Attention& view, const std::vector<ExprId>& vectors) {
  ExpressionWriter writer(view, {}, Precision::in_single);
  std::string rows, types;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const ir::CapturedTensor& tensor = *view.find_tensor(view.dag.symbol_of(vectors[i]));
    writer.begin({.batch = true, .head = true, .row = true});
    for (const ExprId index : view.dag[vectors[i]].operands) (void)writer.value(index);
    const std::string element = writer.element(vectors[i]);
    rows += case_of(
        "kVector", i,
        writer.statements(6) + fmt::format("      return t_{} + ({});\n", tensor.name, element));
    types += case_of(
        "kVector", i,
        fmt::format("      return kernels::VectorRow<{}>{{nullptr}};\n", row_type(tensor.dtype)));
  }
  std::string text = fmt::format("  static constexpr int kVectors = {};\n", vectors.size());
  if (vectors.empty()) return text;
  return text + "  template <int kVector>\n  static __device__ auto vector_type() {\n" + types +
         "  }\n  template <int kVector>\n  __device__ auto vector(int b, int h, int row) const "
         "{\n" +
         rows + "  }\n";
}

// Begins statements about one element of o.
void begin_element(ExpressionWriter& writer, const std::vector<ExprId>& vectors) {
  writer.begin({.batch = true, .head = true, .row = true, .column = true});
  writer.set_score("output");
  for (std::size_t i = 0; i < vectors.size(); ++i)
    writer.set_value(vectors[i], fmt::format("vectors[{}]", i));
}

// `further`: parameters besides those of all elements.
std::string element_method(const std::string& head, const ExpressionWriter& writer,
                           const std::string& value, const std::string& further = "") {
  return fmt::format(
      "  __device__ {}(int b, int h, int row, int column, const float* vectors,\n"
      "                      float output{}) const {{\n{}    return {};\n  }}\n",
      head, further, writer.statements(4), value);
}

Error no_gradient(const ir::Attention& attention, const std::string& name, const std::string& why) {
  const ir::SourcePos pos = attention.find_tensor(name)->pos;
  return {ErrorCode::unsupported,
          fmt::format("the gradient of `{}` through the epilogue is not computed: {}", name, why),
          {"list other gradients alone, as in `grad q, k, v`"},
          fmt::format(R"({{"line": {}, "column": {}}})", pos.line, pos.column)};
}

// An index as one of o and a constant; of a constant alone, as Op::const_int_.
std::pair<Op, std::int64_t> index_of(const ir::Dag& dag, ExprId id) {
  const ir::Node& node = dag[id];
  if (node.is(Op::const_int_)) return {node.op, dag.integer_of(id)};
  const bool adds = node.is(Op::add_) && dag[node.operands[1]].is(Op::const_int_);
  if (adds) return {dag[node.operands[0]].op, dag.integer_of(node.operands[1])};
  return {node.op, 0};
}

// Whether no two loads read the same element, as `gates[h, 0]` and `gates[h, 1]`.
bool are_apart(const ir::Dag& dag, const std::vector<gradient::Gather>& gathers) {
  const auto differ = [&dag](const gradient::Gather& a, const gradient::Gather& b) {
    const std::vector<ExprId>&x = dag[a.load].operands, &y = dag[b.load].operands;
    for (std::size_t axis = 0; axis < x.size(); ++axis) {
      const bool are_constants = dag[x[axis]].is(Op::const_int_) && dag[y[axis]].is(Op::const_int_);
      if (are_constants && dag.integer_of(x[axis]) != dag.integer_of(y[axis])) return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!differ(gathers[i], gathers[j])) return false;
    }
  }
  return true;
}

// Strides of the indices that read the tensor. Returns why it cannot be read so, or nothing.
std::string set_strides(const ir::Attention& view, ExprId load, EpilogueTensor& tensor) {
  const ir::Node& node = view.dag[load];
  const ir::CapturedTensor& declared = *view.find_tensor(tensor.name);
  std::int64_t stride = 1;
  for (std::size_t axis = node.operands.size(); axis-- > 0;) {
    const auto [index, more] = index_of(view.dag, node.operands[axis]);
    const std::int64_t extent = *ir::fold_integer(view.dag, declared.extents[axis]);
    const std::tuple<Op, std::int64_t EpilogueTensor::*, ir::Dim> all[] = {
        {Op::batch_, &EpilogueTensor::batch, ir::Dim::B},
        {Op::head_, &EpilogueTensor::head, ir::Dim::Hq},
        {Op::row_, &EpilogueTensor::row, ir::Dim::Sq},
        {Op::column_, &EpilogueTensor::column, ir::Dim::Skv}};
    const auto* found =
        std::ranges::find_if(all, [&](const auto& each) { return index == std::get<0>(each); });
    if (found == std::end(all) && index != Op::const_int_)
      return "it is read at other indexes than `b`, `h`, `q_raw`, `d_idx` and constants";
    tensor.offset += more * stride;
    tensor.elements *= extent;
    if (found != std::end(all)) {
      auto& own = tensor.*std::get<1>(*found);
      if (own != 0) return "an index reads two of its axes";
      own = stride;
    }
    const std::int64_t read = found == std::end(all) ? 1 : view.dims[std::get<2>(*found)];
    if (more < 0 || more + read > extent)  // kernels store a sum for every index
      return "a condition guards indexes of it that are out of range";
    tensor.is_whole &= extent == read;
    stride *= extent;
  }
  return "";
}

}  // namespace

std::string epilogue_text(const ir::Attention& attention) {
  const ir::Attention view = ir::epilogue_view(attention);
  const std::vector<ExprId> vectors = vectors_of(view, {view.score});
  ExpressionWriter writer(view, {}, Precision::in_single);
  begin_element(writer, vectors);
  const std::vector<ExprId> of_rows = row_values(view, view.score);
  for (std::size_t i = 0; i < of_rows.size(); ++i)
    writer.set_value(of_rows[i], fmt::format("vectors[{}]", vectors.size() + i));
  const std::string value = writer.value(view.score);
  std::vector<ExprId> read = vectors;
  read.insert(read.end(), of_rows.begin(), of_rows.end());
  return fmt::format(
             "  static constexpr bool kEpilogue = true, kKeepsInner = {}, kReadsElements = {}, "
             "kPlainSigmoids = {};\n",
             attention.wants_o_inner, reads_beside(view, view.score, read),
             has_plain_sigmoids(view)) +
         vectors_text(view, vectors) + row_values_text(view, of_rows) +
         "  template <class Sigmoid>\n" +
         element_method("float epilogue", writer, value, ", const Sigmoid& attn_sigmoid");
}

Result<EpilogueSlopes> epilogue_slopes(const ir::Attention& attention) {
  EpilogueSlopes made{ir::epilogue_view(attention), 0, {}};
  ir::Dag& dag = made.view.dag;
  made.output = gradient::derivative(dag, made.view.score, dag.leaf(Op::score_));
  for (const std::string& name : gradient::wanted_gradients(attention)) {
    if (!ir::epilogue_reads(attention, name)) continue;
    if (ir::others_read(attention, name))
      return no_gradient(attention, name, "another clause reads it, too");
    const std::vector<gradient::Gather> gathers = gradient::gathers(dag, made.view.score, name);
    if (gathers.empty())
      return no_gradient(attention, name, "it is read where nothing has a derivative");
    if (!are_apart(dag, gathers))
      return no_gradient(attention, name,
                         "it is read in several ways, which no index of constants tells apart");
    for (const gradient::Gather& gather : gathers) {
      EpilogueTensor& tensor = made.tensors.emplace_back();
      tensor.name = name;
      tensor.dtype = attention.find_tensor(name)->dtype;
      tensor.local = gather.local;
      const std::string why = set_strides(made.view, gather.load, tensor);
      if (!why.empty()) return no_gradient(attention, name, why);
    }
  }
  return made;
}

std::string epilogue_slopes_text(const EpilogueSlopes& slopes) {
  const ir::Attention& view = slopes.view;
  std::vector<ExprId> roots = {slopes.output};
  for (const EpilogueTensor& tensor : slopes.tensors) roots.push_back(tensor.local);
  const std::vector<ExprId> vectors = vectors_of(view, roots);
  ExpressionWriter writer(view, {}, Precision::in_single);
  begin_element(writer, vectors);
  std::vector<std::string> learned;
  const std::string output = fmt::format("(float)({})", writer.value(slopes.output));
  std::string classes, stores;
  for (std::size_t i = 0; i < slopes.tensors.size(); ++i) {
    const EpilogueTensor& of = slopes.tensors[i];
    learned.push_back(fmt::format("(float)({})", writer.value(of.local)));
    classes += fmt::format(
        "  struct Learned{0} {{\n"
        "    static constexpr bool kBatch = {1}, kHead = {2}, kRow = {3}, kColumn = {4};\n"
        "    static constexpr long long kColumnStride = {5};\n"
        "    static __device__ long long place(int b, int h, int row) {{\n"
        "      return {9}ll + b * {6}ll + h * {7}ll + row * {8}ll;\n    }}\n  }};\n",
        i, of.batch != 0, of.head != 0, of.row != 0, of.column != 0, of.column, of.batch, of.head,
        of.row, of.offset);
    stores += case_of("kTensor", i,
                      fmt::format("      gradient_{}[i] = {};\n", i, element_text(of.dtype, "x")));
  }
  const std::string type = fmt::format("kernels::EpilogueSlopes<{}>", slopes.tensors.size());
  std::string text =
      fmt::format("  static constexpr int kLearned = {};\n", slopes.tensors.size()) +
      vectors_text(view, vectors) +
      element_method(type + " slopes", writer,
                     fmt::format("{}{{{}, {{{}}}}}", type, output, fmt::join(learned, ", ")));
  if (slopes.tensors.empty()) return text;
  classes += "  template <int kTensor>\n  static __device__ auto learned_type() {\n";
  for (std::size_t i = 0; i < slopes.tensors.size(); ++i)
    classes += case_of("kTensor", i, fmt::format("      return Learned{}{{}};\n", i));
  return text + classes +
         "  }\n  template <int kTensor>\n  using Learned = decltype(learned_type<kTensor>());\n"
         "  template <int kTensor>\n  __device__ void store(long long i, float x) const {\n" +
         stores + "  }\n";
}

Status check_epilogue(const ir::Attention& attention, plan::Program& program) {
  const ir::Attention view = ir::epilogue_view(attention);
  if (faults_of(view, {view.score}).empty()) return {};
  rewrite::Hoisted all;
  all.attention = view;
  all.derived.emplace_back().expression = view.score;
  std::optional<plan::IndexCheck> check = index_check(view, all);
  if (!check) return {};
  if (!program.check) {
    set_check(program, std::move(check));
    return {};
  }
  return Error{ErrorCode::unsupported,
               "indexes of the epilogue and of scores both depend on bound values, and a plan has "
               "one check of them",
               {"keep the indexes of one of them within what sizes show"},
               fmt::format(R"({{"line": {}, "column": {}}})", attention.epilogue_pos.line,
                           attention.epilogue_pos.column)};
}

}  // namespace attn::codegen
