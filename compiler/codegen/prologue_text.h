// What the kernels of prologues have in common: a warp's rows in shared memory, and expressions of
// their elements (prologues.cpp, prologue_gradients.cpp). All functions return statements or
// expressions of CUDA C++; offsets are in elements.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/prologues.h"

namespace attn::codegen {

inline constexpr std::int64_t kPrologueWarps = 8;            // of a block: kernels::kPrologueWarps
inline constexpr std::int64_t kRowsOfPrologueGradients = 3;  // the row, and gradients of both sides
inline constexpr std::int64_t kPrologueShared = 48 << 10;    // bytes: every GPU has them unasked

// The offset of `column` in row (b, h, row).
std::string offset_text(const std::array<std::int64_t, 4>& strides, const std::string& column);

// Statements that find the place of a row by its number.
std::string place_text(const ir::PrologueView& view, std::string_view number, int indent);

// A loop of a warp's lanes over the columns of a row.
std::string loop_text(std::int64_t columns, const std::string& body);

// Statements that declare the sums of a row.
std::string sums_text(const ir::Attention& attention, const ir::PrologueView& view);

// Statements that load a row to `x`, an element a lane at a time.
std::string loaded(const PrologueRows& rows);

// The tensors of a view that stand for its row.
std::set<std::string> own_names(const ir::PrologueView& view);

// Writes expressions of a row whose elements are in `x`, and whose sums are sum0, sum1, ..
class RowWriter {
 public:
  RowWriter(const ir::Attention& attention, const ir::PrologueView& view,
            Precision precision = Precision::in_single);

  // The text of an element by its column; `x[column]` by default.
  std::function<std::string(const std::string& column)> element;
  std::function<std::string(std::int64_t number)> sum;

  std::string value(ir::ExprId root);
  // Makes this the text of a value from now on.
  void set_value(ir::ExprId id, const std::string& text);

  // The column that a load of an element reads.
  std::string column_of(ir::ExprId load);
  std::string element_of(ir::ExprId load);
  std::string statements(std::size_t indent) const { return writer_.statements(indent); }

 private:
  const ir::PrologueView& view_;
  const ir::Attention& attention_;
  ExpressionWriter writer_;
  std::set<ir::ExprId> known_;
};

// The text of a kernel in which each row, or so many, has a warp.
class WarpKernel {
 public:
  explicit WarpKernel(const char* name) : name_(name) {}

  void write(const std::string& tensor, DType dtype, const std::string& parameter);
  void read(const std::string& tensor, DType dtype, const std::string& parameter);
  // All but those of rows, which are read by names of their own.
  void read(const KernelInputs& inputs, const std::set<std::string>& but);

  // Statements for so many warps, which follow those of the ones before.
  void add_rows(std::int64_t rows, const std::string& body);

  // `rows` of a warp are in shared memory, of so many columns, and with them what they become, in
  // 16 bits, if it is kept there.
  plan::KernelStep finish(std::int64_t rows, std::int64_t columns, bool keeps_results = false) &&;

 private:
  void add(const std::string& tensor, std::string parameter);

  const char* name_;
  plan::KernelStep step_;
  plan::Launch launch_;
  std::vector<std::string> parameters_;
  std::set<std::string> read_;
  std::string body_;
  std::int64_t rows_ = 0;
};

}  // namespace attn::codegen
