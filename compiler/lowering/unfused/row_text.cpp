#include "compiler/lowering/unfused/row_text.h"

#include <fmt/format.h>

#include "compiler/lowering/common/controls.h"
#include "compiler/lowering/cudnn/lengths.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr const char* kRow = R"(
  const long long R = {R}LL;
  const int W = {W}, lane = (int)(i % W);
  const bool live = i / W < R;
  const long long r = live ? i / W : R - 1;
{whole}  const long long s = {row} % {Sq}, h = {row} / {Sq} % {Hq}, b = {row} / {Sq} / {Hq};
  const bool present = {present};
  const long long visible = present ? {visible} : 0;
  const double nothing = -1.0 / 0.0;
)";

std::string present(const ir::Attention& attention, KernelText& kernel) {
  if (!has_row_lengths(attention)) return "true";
  return fmt::format("s < {}[b]", kernel.read(std::string(ir::kLengthsQ), DType::i32));
}

std::string visible(const ir::Attention& attention, KernelText& kernel) {
  const std::int64_t all = attention.dims[Dim::Skv];
  if (!has_column_lengths(attention)) return fmt::format("{}", all);
  const std::string lengths = kernel.read(std::string(ir::kLengthsKv), DType::i32);
  return fmt::format("({0}[b] < {1} ? {0}[b] : {1})", lengths, all);
}

}  // namespace

std::int64_t lanes_of(std::int64_t columns) { return columns >= 32 ? 32 : 8; }

std::string row_text(const ir::Attention& attention, std::int64_t lanes, KernelText& kernel,
                     const std::optional<derive::RowTile>& tile) {
  const ir::Dims& d = attention.dims;
  std::string whole;
  if (tile) {
    whole = fmt::format("  const long long* first = {};\n  const long long whole = {};\n",
                        kernel.read(tile->first, DType::i64), tile->row_text("r"));
  }
  const std::int64_t rows = tile ? tile->all_rows() : d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  return fmt::format(fmt::runtime(kRow), fmt::arg("R", rows), fmt::arg("W", lanes),
                     fmt::arg("whole", whole), fmt::arg("row", tile ? "whole" : "r"),
                     fmt::arg("Sq", d[Dim::Sq]), fmt::arg("Hq", d[Dim::Hq]),
                     fmt::arg("present", present(attention, kernel)),
                     fmt::arg("visible", visible(attention, kernel)));
}

std::string row_place(const ir::Attention& attention, KernelText& kernel, bool tiled) {
  if (addressed_by(attention, "lse").empty()) return tiled ? "whole" : "r";
  return fmt::format("({}[b] + s) * {}LL + h", kernel.read(kRowStarts, DType::i32),
                     attention.dims[Dim::Hq]);
}

std::string sum_over_lanes(const std::string& variable) {
  return fmt::format(
      "  for (int step = W / 2; step > 0; step /= 2) {0} += __shfl_xor_sync(0xffffffffu, {0}, "
      "step);\n",
      variable);
}

}  // namespace attn::lowering
