#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"
#include "compiler/engines/native/backward_kernel.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products_backward.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Lists and constants of the kernels, as text.
class BackwardLists {
 public:
  explicit BackwardLists(const BackwardKernel& kernel) : kernel_(kernel) {}

 protected:
  // What lists of ordered sums have besides.
  std::string order_text() const {
    if (!kernel_.ordered()) return "";
    std::vector<std::int64_t> before;
    for (const KeyRun& run : kernel_.blocks.runs) before.push_back(run.before);
    if (before.empty()) before.push_back(0);
    return fmt::format(
        "static __device__ const int kBefore[] = {{{}}};\n"
        "struct OrderedLists : Lists {{\n"
        "  __device__ int before(int i) const {{ return kBefore[i]; }}\n}};\n",
        fmt::join(before, ", "));
  }

  // Lists without blocks. Most rows see the first keys, unless the band only ends: then the last.
  std::string tiles_of_band_text() const {
    const bool last_first = kernel_.band->end_varies && !kernel_.band->begin_varies;
    return fmt::format("using Lists = kernels::TilesOfBand<{}, {}>;\n", kernel_.blocks.tiles,
                       last_first);
  }

  // What lists have besides where blocks of keys are divided.
  std::string division_text() const {
    if (!kernel_.divides()) return "";
    const char* const base = kernel_.ordered() ? "OrderedLists" : "Lists";
    if (kernel_.made_lists) {
      return fmt::format(
          "struct DividedLists : {} {{\n"
          "  const kernels::Division* division;\n"
          "  __device__ int parts() const {{ return division->parts; }}\n"
          "  __device__ int most() const {{ return division->most; }}\n"
          "  __device__ kernels::Part part(int i) const {{ return division->part(i); }}\n}};\n",
          base);
    }
    std::string parts;
    for (std::size_t i = 0; i < kernel_.division.parts.size(); ++i) {
      const RowPart& of = kernel_.division.parts[i];
      parts += fmt::format("{}{{{}, {}, {}, {}}},", i % 6 == 0 ? "\n    " : " ", of.unit, of.tile,
                           of.part, of.parts);
    }
    const bool in_order = !kernel_.division.in_order.empty();
    return fmt::format(
        "static __device__ const kernels::Part kParts[] = {{{}\n}};\n{}"
        "struct DividedLists : {} {{\n"
        "  __device__ int parts() const {{ return {}; }}\n"
        "  __device__ int most() const {{ return {}; }}\n"
        "  __device__ kernels::Part part(int i) const {{ return kParts[i]; }}\n}};\n",
        parts, in_order ? parts_in_order_text() : "", in_order ? "ListsOfItems" : base,
        kernel_.parts(), kernel_.division.most);
  }

  // What ordered lists have besides where parts are among other items.
  std::string parts_in_order_text() const {
    std::vector<std::string> blocks;
    for (const DividedBlock& block : kernel_.division.in_order) {
      blocks.push_back(fmt::format("{{{}, {}}}", block.item, block.part));
    }
    return fmt::format(
        "static __device__ const kernels::DividedBlock kDividedBlocks[] = {{{}}};\n"
        "struct ListsOfItems : OrderedLists {{\n"
        "  __device__ int divided_blocks() const {{ return {}; }}\n"
        "  __device__ kernels::DividedBlock divided_block(int i) const {{\n"
        "    return kDividedBlocks[i];\n  }}\n}};\n",
        fmt::join(blocks, ", "), blocks.size());
  }

  // `runs`: if the GPU makes the lists, where they are.
  std::string lists_object(const char* runs) const {
    const std::string lists = kernel_.made_lists ? fmt::format("tiles, {}", runs) : "";
    if (!kernel_.divides()) {
      return fmt::format("{}{{{}}}", kernel_.ordered() ? "OrderedLists" : "Lists", lists);
    }
    if (!kernel_.made_lists) return "DividedLists{}";
    return fmt::format(
        "DividedLists{{{{{}}}, reinterpret_cast<const kernels::Division*>(counter + {})}}", lists,
        kernel_.first_word_of_division());
  }

  // Elements of dq, dk and dv.
  std::string gradient_type() const {
    return std::string(codegen::element_type(kernel_.attention.dtype_of("dq")));
  }

  const BackwardKernel& kernel_;
};

// The kernels beside that of the products, as text: sums, the largest parts, spreading.
class SmallKernels : public BackwardLists {
 public:
  using BackwardLists::BackwardLists;

 protected:
  // Blocks of threads of a multiprocessor: as many as its threads allow.
  static constexpr int kBlocksOfConversion = 2048 / BackwardKernel::kThreads;

  // The kernel that makes dq of its sums, and adds those of parts of blocks of keys.
  std::string ending_text() const {
    const bool converts = kernel_.wants("dq");
    if (!converts && !kernel_.divides()) return "";
    std::vector<std::string> parameters;
    if (converts) parameters = {"const float* sums", gradient_type() + "* dq"};
    if (converts && kernel_.rows) parameters.emplace_back("unsigned* amax_dq");
    if (converts && kernel_.has_row_starts()) parameters.push_back(starts_text(kRowStarts));
    if (kernel_.divides()) add_merged(parameters);
    std::string body;
    if (kernel_.divides()) {
      body = fmt::format(
          "  if (blockIdx.x < {0}) {{\n"
          "    kernels::merge_parts<Constants>(key_sums, {1}, expressions, {2},\n"
          "                                    {{{3}}}, blockIdx.x, {0});\n    return;\n  }}\n",
          kernel_.mergers(), kernel_.has_column_starts() ? kColumnStarts : "nullptr",
          lists_object("nullptr"), merged_object());
    }
    if (converts) {
      body += fmt::format(
          "  kernels::convert<Constants>(sums, {}, expressions, dq, {}, blockIdx.x - {});\n",
          kernel_.has_row_starts() ? kRowStarts : "nullptr", kernel_.rows ? "amax_dq" : "nullptr",
          kernel_.mergers());
    }
    return fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}, {}) {}(\n    {}{}) {{\n  {}\n{}}}\n",
        BackwardKernel::kThreads, kBlocksOfConversion, converts ? kConvertKernel : kMergeKernel,
        fmt::join(parameters, ",\n    "), parameters_text(kernel_.expressions.inputs),
        expressions_object(kernel_.whole, kernel_.expressions.inputs), body);
  }

  static std::string starts_text(const char* name) { return fmt::format("const int* {}", name); }

  void add_merged(std::vector<std::string>& parameters) const {
    parameters.emplace_back("const float* key_sums");
    if (kernel_.has_column_starts()) parameters.push_back(starts_text(kColumnStarts));
    for (const char* gradient : {"dk", "dv"}) {
      if (!kernel_.wants(gradient)) continue;
      parameters.push_back(fmt::format("{}* {}", gradient_type(), gradient));
      if (kernel_.rows) parameters.push_back(fmt::format("unsigned* amax_{}", gradient));
    }
    if (!kernel_.made_lists) return;
    parameters.emplace_back("const kernels::Tile* tiles");
    parameters.emplace_back("const int* counter");
  }

  // The members of a MergedGradients.
  std::string merged_object() const {
    const char* const dk = kernel_.wants("dk") ? "dk" : "nullptr";
    const char* const dv = kernel_.wants("dv") ? "dv" : "nullptr";
    if (!kernel_.rows) return fmt::format("{}, {}, nullptr, nullptr", dk, dv);
    return fmt::format("{}, {}, {}, {}", dk, dv, kernel_.wants("dk") ? "amax_dk" : "nullptr",
                       kernel_.wants("dv") ? "amax_dv" : "nullptr");
  }

  // The parameters are those of BackwardProgram::widening.
  std::string widening_text() const {
    const auto starts = [](bool has, const char* name) {
      return has ? fmt::format(", const int* {}", name) : "";
    };
    return fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}) {}(\n"
        "    const unsigned char* q, const unsigned char* k, const unsigned char* v,\n"
        "    const unsigned char* d_o, const void* o, const float* lse, unsigned short* "
        "query_rows,\n"
        "    unsigned short* key_rows, unsigned short* value_rows, unsigned short* gradient_rows,\n"
        "    float* exponents, float* deltas, unsigned* {}{}{}{}) {{\n  {}\n"
        "  const kernels::NarrowTensors tensors{{\n"
        "      q, k, v, d_o, o, lse, query_rows, key_rows, value_rows, gradient_rows, exponents,\n"
        "      deltas, {}, {}, {{{}}}}};\n"
        "  kernels::Widener<Constants, Expressions>{{tensors, expressions}}.run();\n}}\n",
        BackwardKernel::kThreads, kPrepareKernel, fmt::join(kAmaxOfGradients, ", unsigned* "),
        starts(kernel_.has_row_starts(), kRowStarts),
        starts(kernel_.has_column_starts(), kColumnStarts),
        parameters_text(kernel_.expressions.inputs),
        expressions_object(kernel_.whole, kernel_.expressions.inputs),
        kernel_.has_row_starts() ? kRowStarts : "nullptr",
        kernel_.has_column_starts() ? kColumnStarts : "nullptr", fmt::join(kAmaxOfGradients, ", "));
  }

  // The parameters are those of BackwardProgram::preparing.
  std::string prepare_text() const {
    if (kernel_.rows) return widening_text();
    const bool pointwise = kernel_.attention.is_pointwise(), reads = kernel_.whole.reads_d_lse;
    const bool measures = reads && kernel_.shares(), packed = kernel_.has_row_starts();
    std::string rows;
    if (!pointwise) {
      rows =
          "const unsigned short* o, const unsigned short* d_o,\n"
          "                                        const float* lse, ";
    }
    if (reads) rows += "const float* d_lse, ";
    if (measures) rows += "unsigned long long* words, ";
    std::string more = reads ? ", d_lse" : "";
    if (measures) more += ", reinterpret_cast<kernels::Largest*>(words)";
    return fmt::format(
        "extern \"C\" __global__ void {}({}float* exponents,\n"
        "                                        float* deltas{}{}) {{\n  {}\n"
        "  kernels::prepare<Constants>({}, {}, expressions, exponents, deltas{});\n}}\n",
        kPrepareKernel, rows, packed ? fmt::format(", const int* {}", kRowStarts) : "",
        parameters_text(kernel_.expressions.inputs),
        expressions_object(kernel_.whole, kernel_.expressions.inputs),
        pointwise ? "nullptr, nullptr, nullptr" : "o, d_o, lse", packed ? kRowStarts : "nullptr",
        more);
  }

  std::string largest_text() const {
    const auto starts = [](bool has, const char* name) {
      return has ? fmt::format(", const int* {}", name) : "";
    };
    return fmt::format(
        "extern \"C\" __global__ void {}(const unsigned short* d_o, const unsigned short* v,\n"
        "                                        unsigned long long* words{}{}{}) {{\n  {}\n"
        "  kernels::find_largest<Constants, {}>(d_o, v, {}, {}, expressions, words);\n}}\n",
        kLargestKernel, starts(kernel_.has_row_starts(), kRowStarts),
        starts(kernel_.has_column_starts(), kColumnStarts),
        parameters_text(kernel_.expressions.inputs),
        expressions_object(kernel_.whole, kernel_.expressions.inputs),
        kernel_.rows ? "Constants::GradientRows, Constants::ValueRows"
                     : "Constants::Outputs, Constants::Values",
        kernel_.has_row_starts() ? kRowStarts : "nullptr",
        kernel_.has_column_starts() ? kColumnStarts : "nullptr");
  }

  std::string spreading_text(std::size_t part) const {
    const LearnedPart& of = kernel_.expressions.parts[part];
    return fmt::format(
        "extern \"C\" __global__ void {}(unsigned long long* words{}) {{\n  {}\n"
        "  const kernels::ExactSums sums{{words + {}, {}}};\n"
        "  kernels::spread_diagonals<Constants, {}>(words, sums, expressions);\n}}\n",
        kernel_.spreading_kernel(part), parameters_text(kernel_.expressions.inputs),
        expressions_object(kernel_.whole, kernel_.expressions.inputs), of.sums,
        kernel_.elements_of(kernel_.tensor_of(of)), part);
  }
};

class BackwardText : private SmallKernels {
 public:
  using SmallKernels::SmallKernels;

  std::string source() const {
    return (kWatched && !kernel_.tile.of_warps
                ? watch_text({"keys", "values", "queries 0", "queries 1", "gradients 0",
                              "gradients 1", "slopes 0", "slopes 1", "sums", "draws 0", "draws 1",
                              "draws 2", "draws 3"})
                : "") +
           codegen::include_text(file_of_skeleton()) +
           (kernel_.rows ? codegen::include_text("backward_widening.cuh") : "") + lists() +
           division_text() + constants_of(kernel_) +
           gradient_expressions_text(kernel_.derivatives, kernel_.expressions,
                                     kernel_.made_lists.has_value(), kernel_.band) +
           kernels_text();
  }

 private:
  std::string kernels_text() const {
    const std::string inputs = parameters_text(kernel_.expressions.inputs);
    const std::string object = expressions_object(kernel_.whole, kernel_.expressions.inputs);
    std::vector<std::string> parameters;
    std::string fields;
    const auto add = [&](bool there, const char* type, const char* name, const char* field) {
      if (!there) return;
      parameters.push_back(fmt::format("{} {}", type, name));
      fields += field_text(field, name);
    };
    for (const std::string name : BackwardKernel::kCopied) {
      if (kernel_.tile.of_warps)
        add(true, "const unsigned short*", name == "do" ? "d_o" : name.c_str(), rows_field(name));
      else
        add_map(name, parameters, fields);
    }
    add(kernel_.has_row_starts(), "const int*", kRowStarts, "row_starts");
    add(kernel_.has_column_starts(), "const int*", kColumnStarts, "column_starts");
    const bool is_short = kernel_.tile.is_short;
    add(!is_short, "const float*", "exponents", "exponents");
    add(!is_short, "const float*", "deltas", "deltas");
    add(!is_short && kernel_.wants("dq"), "float*", "sums", "query_sums");
    add(is_short && !kernel_.attention.is_pointwise(), "const unsigned short*", "o", "output_rows");
    add(is_short && !kernel_.attention.is_pointwise(), "const float*", "lse", "lse");
    add(is_short && kernel_.whole.reads_d_lse, "const float*", "d_lse", "d_lse");
    add(is_short && kernel_.wants("dq"), "unsigned short*", "dq", "dq");
    add(kernel_.ordered(), "int*", "turns", "turns");
    const std::string gradients = gradient_type() + "*";
    add(kernel_.wants("dk"), gradients.c_str(), "dk", "dk");
    add(kernel_.wants("dv"), gradients.c_str(), "dv", "dv");
    for (const char* amax : {"amax_dp", "amax_dk", "amax_dv"})
      add(kernel_.rows.has_value(), "unsigned*", amax, amax);
    add(kernel_.divides(), "float*", "key_sums", "key_sums");
    add(kernel_.count_of(Reach::heads) > 0, "float*", "parts", "parts");
    add(kernel_.words > 0, "unsigned long long*", "words", "words");
    std::size_t own = 0;
    for (const gradient::TensorGradient* tensor : kernel_.by_scores()) {
      if (kernel_.part_of(*tensor).reach != Reach::own) continue;
      const std::string name = gradient::gradient_name(tensor->tensor);
      parameters.push_back("void* " + name);
      fields += field_text(fmt::format("own[{}]", own++), name);
    }
    add(!is_short, "int*", "counter", "counter");
    const bool table = kernel_.expressions.table.has_value();
    if (kernel_.made_lists)
      parameters.emplace_back("const kernels::Tile* tiles, const kernels::Run* runs");
    if (table && is_short) {
      add(true, "const unsigned short*", "table", "table_rows");
    } else if (table) {
      parameters.emplace_back("const __grid_constant__ kernels::TensorMap table");
      fields += field_text("table", "&table");
    }
    std::string text = kernel_.made_lists
                           ? kernel_.made_lists->text(inputs, object, kernel_.made_division,
                                                      kernel_.first_word_of_division())
                           : "";
    text += fmt::format(
        "static_assert(kernels::BackwardStages<Constants>::kBytes + {} == {}, \"\");\n{}"
        "extern \"C\" __global__ void __launch_bounds__({}, {}) {}(\n    {}{}) {{\n  {}\n"
        "  kernels::BackwardTensors tensors;\n{}"
        "  kernels::{}<Constants>(tensors, expressions{});\n}}\n",
        kernel_.tile.alignment(), kernel_.shared_bytes(), is_short ? "" : prepare_text(),
        kernel_.tile.threads(), kernel_.tile.resident, kernel_.name(),
        fmt::join(parameters, ",\n    "), inputs, object, fields, main_function(),
        is_short ? "" : ", " + lists_object("runs"));
    if (kernel_.shares()) text += largest_text();
    for (std::size_t i = 0; i < kernel_.expressions.parts.size(); ++i) {
      if (kernel_.expressions.parts[i].reach == Reach::diagonal) text += spreading_text(i);
    }
    for (const gradient::TensorGradient* tensor : kernel_.by_scores()) {
      if (kernel_.part_of(*tensor).reach != Reach::own || kernel_.is_zeroed(*tensor))
        text += text_of(*tensor);
    }
    return is_short ? text : text + ending_text();
  }

  // The function of the skeleton, and its file.
  const char* main_function() const {
    return kernel_.tile.is_short   ? "short_backward"
           : kernel_.tile.of_warps ? "backward_of_warps"
                                   : "backward";
  }
  const char* file_of_skeleton() const {
    return kernel_.tile.is_short   ? "mma_short_backward.cuh"
           : kernel_.tile.of_warps ? "mma_backward.cuh"
                                   : "backward.cuh";
  }
  // What says which blocks of rows see which keys.
  std::string lists() const {
    if (kernel_.tile.is_short) return "";
    if (kernel_.made_lists) return codegen::include_text("row_lists.cuh") + lists_in_memory_text();
    return kernel_.band ? tiles_of_band_text() : lists_text(kernel_.blocks) + order_text();
  }

  static void add_map(const std::string& name, std::vector<std::string>& parameters,
                      std::string& fields) {
    const std::string parameter = name == "do" ? "d_o" : name;
    fields += field_text(parameter, "&" + parameter);
    parameters.push_back("const __grid_constant__ kernels::TensorMap " + parameter);
  }

  // The field of BackwardTensors that has the address of a tensor.
  static const char* rows_field(const std::string& name) {
    return name == "q"   ? "query_rows"
           : name == "k" ? "key_rows"
           : name == "v" ? "value_rows"
                         : "gradient_rows";
  }

  // The kernel of sum_of or zero_of.
  std::string text_of(const gradient::TensorGradient& tensor) const {
    const DType dtype = kernel_.whole.find_tensor(tensor.tensor)->dtype;
    const std::int64_t elements = kernel_.elements_of(tensor.tensor);
    const LearnedPart& first = kernel_.part_of(tensor);
    const auto element = [&](const std::string& value) {
      return codegen::element_text(dtype, kernel_.rows ? value + " * " + kSlopeFactor : value);
    };
    const std::string inputs = parameters_text(kernel_.expressions.inputs);
    const std::string object = expressions_object(kernel_.whole, kernel_.expressions.inputs);
    const std::string gradient = fmt::format("{}* gradient", codegen::element_type(dtype));
    if (first.reach == Reach::heads) {
      return fmt::format(
          "extern \"C\" __global__ void {}(const float* parts, {}{}) {{\n  {}\n"
          "  double share = 0;\n{}  const double sum = kernels::sum_of_shares(share);\n"
          "  if (threadIdx.x == 0) gradient[blockIdx.x] = {};\n}}\n",
          kernel_.kernel_of(tensor), gradient, inputs, object, shares_text(tensor), element("sum"));
    }
    const bool own = first.reach == Reach::own;
    const std::string sum =
        first.reach == Reach::shared && first.bits > 0
            ? fmt::format(
                  "    const auto largest = reinterpret_cast<kernels::Largest*>(words);\n"
                  "    const double sum = kernels::FixedSums{{largest, words + {}}}.sum(i, {});\n",
                  first.place, first.bits)
            : fmt::format("    const double sum = kernels::ExactSums{{words + {}, {}}}.sum(i);\n",
                          first.sums, elements);
    const bool scales = kernel_.rows && !own;
    return fmt::format(
        "extern \"C\" __global__ void {}({}{}{}) {{\n{}  const long long i = attn_thread();\n"
        "  if (i < {}) {{\n{}    gradient[i] = {};\n  }}\n}}\n",
        kernel_.kernel_of(tensor), own ? "" : "unsigned long long* words, ", gradient,
        scales ? inputs : "", scales ? "  " + object + "\n" : "", elements, own ? "" : sum,
        own ? "0" : element("sum"));
  }

  std::string shares_text(const gradient::TensorGradient& tensor) const {
    std::string shares;
    for (std::size_t i = 0; i < kernel_.expressions.parts.size(); ++i) {
      const LearnedPart& part = kernel_.expressions.parts[i];
      if (kernel_.tensor_of(part) != tensor.tensor) continue;
      shares += fmt::format(
          "  for (int turn = 0; turn < {}; ++turn) {{\n"
          "    const long long place = {}ll + turn * kernels::kPartsOfTurn<Constants>;\n"
          "    share += kernels::share_of_parts<Constants>(parts + place, [&](int b, int h) {{\n"
          "      return expressions.element<{}>(b, h, 0, 0, turn);\n    }});\n  }}\n",
          part.turns(), part.place, i);
    }
    return shares;
  }
};

}  // namespace

std::string source_of(const BackwardKernel& kernel) { return BackwardText(kernel).source(); }

}  // namespace attn::engines::native
