#include "compiler/engines/shared/controls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "runtime/graph/extent.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::LayoutKind;

bool is_thd(const ir::Attention& attention, std::string_view name) {
  return layout_of(attention, name).kind == LayoutKind::thd;
}

bool has_row_starts(const ir::Attention& attention) {
  return is_thd(attention, "q") || is_thd(attention, "o");
}

bool has_column_starts(const ir::Attention& attention) {
  return is_thd(attention, "k") || is_thd(attention, "v");
}

plan::TensorInfo info(std::string name, plan::TensorRole role, DType dtype,
                      std::vector<std::int64_t> dims, std::int64_t alignment) {
  std::vector<std::int64_t> strides = row_major_strides(dims);
  return {std::move(name), role, dtype, std::move(dims), std::move(strides), alignment};
}

class ControlsMaker {
 public:
  ControlsMaker(const ir::Attention& attention, const std::set<std::string>& used)
      : attention_(attention), used_(used), batches_(attention.dims[Dim::B]) {}

  Controls make() && {
    for (const char* name : {"k", "v"}) page_table(name);
    missing_lengths();
    from_starts();
    for (const char* name : {kSeed, kOffset}) {
      if (used_.contains(name)) give(name, DType::i64, {1}, 8);
    }
    return std::move(controls_);
  }

 private:
  void give(std::string name, DType dtype, std::vector<std::int64_t> dims, std::int64_t alignment) {
    controls_.given.push_back(
        info(std::move(name), plan::TensorRole::control, dtype, std::move(dims), alignment));
  }

  void page_table(const char* tensor) {
    if (layout_of(attention_, tensor).kind != LayoutKind::paged) return;
    std::string name = page_table_name(attention_, tensor);
    if (!controls_.given.empty() && controls_.given.back().name == name)
      return;  // k and v share it
    const Dims4 dims = page_table_dims(attention_, tensor);
    give(std::move(name), DType::i32, {dims[0], dims[2]}, 4);
    controls_.given.back().bound_strides = layout_of(attention_, tensor).bound_strides;
  }

  void internal(std::string name, DType dtype, std::int64_t count) {
    controls_.internals.push_back(info(std::move(name), plan::TensorRole::internal, dtype, {count},
                                       plan::kInternalAlignment));
  }

  void missing_lengths() {
    codegen::KernelText kernel;
    const auto fill = [&](std::string_view name, bool given, Dim dim) {
      const std::string tensor(name), size = fmt::format("{}", attention_.dims[dim]);
      if (given || !used_.contains(tensor)) return;
      internal(tensor, DType::i32, batches_);
      kernel.make(tensor, DType::i32, batches_, size, fmt::format("out[i] = {};", size));
    };
    fill(ir::kLengthsQ, has_row_lengths(attention_), Dim::Sq);
    fill(ir::kLengthsKv, has_column_lengths(attention_), Dim::Skv);
    if (!kernel.empty()) controls_.steps.push_back(std::move(kernel).finish(true));
  }

  void from_starts() {
    codegen::KernelText kernel;
    if (has_row_starts(attention_)) {
      add_starts(kernel, kRowStarts, ir::kLengthsQ, {"q", "o", "lse"}, Dim::Sq);
    }
    if (has_column_starts(attention_)) {
      add_starts(kernel, kColumnStarts, ir::kLengthsKv, {"k", "v"}, Dim::Skv);
    }
    if (!kernel.empty()) controls_.steps.push_back(std::move(kernel).finish(false));
  }

  void add_starts(codegen::KernelText& kernel, const char* given, std::string_view lengths,
                  const std::vector<const char*>& tensors, Dim rows) {
    give(given, DType::i32, {batches_ + 1}, 4);
    const std::string starts = kernel.read(given, DType::i32);
    if (used_.contains(std::string(lengths))) {
      internal(std::string(lengths), DType::i32, batches_);
      kernel.make(std::string(lengths), DType::i32, batches_,
                  fmt::format("{0}[b + 1] - {0}[b]", given),
                  fmt::format("const int rows = {0}[i + 1] - {0}[i];\n"
                              "    out[i] = rows < {1} ? rows : {1};",
                              starts, attention_.dims[rows]));
    }
    for (const char* tensor : tensors) {
      const std::string name = offsets_name(tensor);
      if (!used_.contains(name)) continue;
      const bool stats = is_statistic(tensor);
      const std::int64_t row =
          stats ? attention_.dims[Dim::Hq] : stored_strides(attention_, tensor)[2];
      const DType dtype = offsets_dtype(attention_);
      internal(name, dtype, batches_ + 1);
      kernel.make(name, dtype, batches_ + 1, fmt::format("{}[b] * {}", given, row),
                  fmt::format("out[i] = {}[i] * static_cast<{}>({});", starts,
                              codegen::element_type(dtype), row));
    }
  }

  const ir::Attention& attention_;
  const std::set<std::string>& used_;
  std::int64_t batches_;
  Controls controls_;
};

}  // namespace

std::string addressed_by(const ir::Attention& attention, std::string_view name) {
  const std::string_view owner = layout_owner(name);
  const LayoutKind kind = layout_of(attention, name).kind;
  if (kind == LayoutKind::paged) return page_table_name(attention, owner);
  if (kind != LayoutKind::thd) return "";
  return owner == "q" || owner == "o" ? kRowStarts : kColumnStarts;
}

std::string offsets_name(std::string_view name) {
  return std::string(is_statistic(name) ? "lse" : layout_owner(name)) + ".offsets";
}

DType offsets_dtype(const ir::Attention& attention) {
  std::int64_t largest = 0;
  for (const char* name : {"q", "k", "v", "o"}) {
    if (!is_thd(attention, name)) continue;
    const Dims4 dims = logical_dims(attention, name);
    largest = std::max(largest, dims[0] * dims[1] * dims[2] * dims[3]);
  }
  return largest <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
}

std::string page_table_name(const ir::Attention& attention, std::string_view name) {
  const ir::Layout& k = attention.layouts.find("k")->second;
  if (k.tables == 1 && k == attention.layouts.find("v")->second) return "page_table";
  return "page_table_" + std::string(name);
}

Controls controls(const ir::Attention& attention, const std::set<std::string>& used) {
  return ControlsMaker(attention, used).make();
}

}  // namespace attn::engines
