#include "compiler/codegen/prologues.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/prologue_text.h"
#include "compiler/codegen/row_values.h"

namespace attn::codegen {

using ir::Dim;
using ir::ExprId;

std::int64_t most_columns_of_prologues(bool backward) {
  const std::int64_t rows = backward ? kRowsOfPrologueGradients : 1;
  return kPrologueShared / (kPrologueWarps * rows * static_cast<std::int64_t>(sizeof(float)));
}

namespace {

std::int64_t most_columns(const std::vector<PrologueRows>& all) {
  std::int64_t columns = 1;
  for (const PrologueRows& rows : all) columns = std::max(columns, rows.view->columns());
  return columns;
}

constexpr std::int64_t kVector = 8;  // elements of 16 bits that a lane copies at once

// Whether lanes copy a prologue's rows as vectors: elements are adjacent and of 16 bits.
bool copies_vectors(const PrologueRows& rows) {
  const auto are_of_vectors = [](std::int64_t n) { return n % kVector == 0; };
  const std::int64_t columns = rows.view->columns();
  const std::int64_t most =
      kPrologueShared / (kPrologueWarps * static_cast<std::int64_t>(sizeof(float) + 2));
  return size_of(rows.view->attention.dtype) == 2 && rows.strides[3] == 1 && columns <= most &&
         are_of_vectors(columns) &&
         std::all_of(rows.strides.begin(), rows.strides.end() - 1, are_of_vectors);
}

// A warp has rows of several heads at one position, whose loads are under way together and which
// read what positions have once. Shared memory has the elements, and what they become.
std::int64_t rows_of_warp(const ir::PrologueView& view) {
  const std::int64_t row = view.columns() * static_cast<std::int64_t>(sizeof(float) + 2);
  for (const std::int64_t rows : {4, 2}) {
    const bool fits = kPrologueWarps * rows * row <= kPrologueShared;
    if (fits && view.attention.dims[Dim::Hq] % rows == 0) return rows;
  }
  return 1;
}

// Statements that make rows in one launch: each lane copies vectors, or elements if it cannot.
class MadeRows {
 public:
  explicit MadeRows(const PrologueRows& rows)
      : rows_(rows),
        view_(*rows.view),
        of_warp_(rows_of_warp(view_)),
        by_vectors_(copies_vectors(rows)),
        values_(row_values(view_.attention, view_.value)) {}

  std::string text() const {
    const std::string synchronised = "    __syncwarp();\n";
    std::string text = place_of_warp() + loaded_rows() + synchronised + of_rows() + values();
    if (by_vectors_) text += synchronised + stored();
    return text;
  }
  std::int64_t warps() const { return view_.rows() / of_warp_; }
  std::int64_t of_warp() const { return of_warp_; }
  bool by_vectors() const { return by_vectors_; }

 private:
  // Those of all heads at a position follow each other, so that they find what positions read in a
  // cache.
  std::string place_of_warp() const {
    const ir::Dims& d = view_.attention.dims;
    const bool is_small = view_.rows() <= std::numeric_limits<std::int32_t>::max();
    return fmt::format(
        "    const {0} at = number;\n"
        "    const int head = (int)(at % {1}) * {2}, row = (int)(at / {1} % {3}), b = (int)(at / "
        "{4});\n",
        is_small ? "unsigned" : "long long", d[Dim::Hq] / of_warp_, of_warp_, d[Dim::Sq],
        d[Dim::Hq] / of_warp_ * d[Dim::Sq]);
  }
  std::string each_row(const std::string& body) const {
    return fmt::format(
        "#pragma unroll\n    for (int r = 0; r < {}; ++r) {{\n"
        "      const int h = head + r;\n      float* x = rows[warp][r];\n{}    }}\n",
        of_warp_, body);
  }
  // A loop over the vectors of all rows, each from `column` of row `r` on.
  std::string each_vector(const std::string& body) const {
    const std::int64_t of_row = view_.columns() / kVector;
    return fmt::format(
        "#pragma unroll\n    for (int i = lane; i < {0}; i += 32) {{\n"
        "      const int r = i / {1}, column = i % {1} * {2}, h = head + r;\n      {3}\n    }}\n",
        of_warp_ * of_row, of_row, kVector, body);
  }

  std::string loaded_rows() const {
    if (!by_vectors_) return each_row(loaded(rows_));
    return each_vector(fmt::format("kernels::load_eight<{}>(&rows[warp][r][column], from_{} + {});",
                                   float_class(view_.attention.dtype), view_.tensor,
                                   offset_text(rows_.strides, "column")));
  }
  // Declares what all columns of a row share: its sums, and values of them.
  std::string of_rows() const {
    const auto declared = [this](const char* name, std::size_t count) {
      return count == 0 ? "" : fmt::format("    float {}[{}][{}];\n", name, of_warp_, count);
    };
    if (view_.sums.empty() && values_.empty()) return "";
    std::string body = sums_text(view_.attention, view_);
    for (std::size_t i = 0; i < view_.sums.size(); ++i)
      body += fmt::format("      sums[r][{0}] = sum{0};\n", i);
    RowWriter writer(view_.attention, view_);
    std::string kept;
    for (std::size_t i = 0; i < values_.size(); ++i)
      kept += fmt::format("      values[r][{}] = {};\n", i, writer.value(values_[i]));
    return declared("sums", view_.sums.size()) + declared("values", values_.size()) +
           each_row(body + writer.statements(6) + kept);
  }
  // A lane has two adjacent columns of all rows, so that what they read is read together, and
  // stores them after all.
  std::string values() const {
    RowWriter writer(view_.attention, view_);
    writer.sum = [](std::int64_t number) { return fmt::format("sums[r][{}]", number); };
    for (std::size_t i = 0; i < values_.size(); ++i)
      writer.set_value(values_[i], fmt::format("values[r][{}]", i));
    const std::string value = element_text(view_.attention.dtype, writer.value(view_.value));
    const std::string statements = writer.statements(6);
    if (!by_vectors_)
      return loop_text(view_.columns(),
                       each_row(fmt::format("{}      made_{}[{}] = {};\n", statements, view_.tensor,
                                            place(), value)));
    return fmt::format(
        "    for (int first = 2 * lane; first < {}; first += 64) {{\n"
        "      unsigned short made[{}][2];\n{}{}    }}\n",
        view_.columns(), of_warp_,
        each_row(fmt::format("#pragma unroll\n      for (int j = 0; j < 2; ++j) {{\n"
                             "      const int column = first + j;\n{}      made[r][j] = {};\n"
                             "      }}\n",
                             statements, value)),
        each_row("      kernels::store_pair(&results[warp][r][first], made[r]);\n"));
  }
  std::string stored() const {
    return each_vector(fmt::format("kernels::store_eight(made_{} + {}, &results[warp][r][column]);",
                                   view_.tensor, place()));
  }
  std::string place() const {
    const ir::Dims& d = view_.attention.dims;
    return fmt::format("(((long long)b * {} + h) * {} + row) * {} + column", d[Dim::Hq], d[Dim::Sq],
                       view_.columns());
  }

  const PrologueRows& rows_;
  const ir::PrologueView& view_;
  const std::int64_t of_warp_;
  const bool by_vectors_;
  const std::vector<ExprId> values_;  // of rows
};

}  // namespace

plan::KernelStep prologues_step(const std::vector<PrologueRows>& all) {
  WarpKernel kernel(kProloguesKernel);
  for (const PrologueRows& rows : all)
    kernel.write(rows.made, rows.view->attention.dtype, "made_" + rows.view->tensor);
  bool by_vectors = false;
  std::int64_t most = 1;
  for (const PrologueRows& rows : all) {
    const ir::PrologueView& view = *rows.view;
    kernel.read(view.tensor, view.attention.dtype, "from_" + view.tensor);
    std::vector<ExprId> roots = view.sums;
    roots.push_back(view.value);
    kernel.read(inputs_of(view.attention, roots), own_names(view));
    const MadeRows made(rows);
    kernel.add_rows(made.warps(), made.text());
    by_vectors |= made.by_vectors();
    most = std::max(most, made.of_warp());
  }
  return std::move(kernel).finish(most, most_columns(all), by_vectors);
}

}  // namespace attn::codegen
