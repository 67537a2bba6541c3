// Which blocks kernels compute of masks that are bands (compiler/engines/native/bands.h): of random
// masks, lengths and inputs, compared with the masks score by score, on an emulated GPU.
#include "compiler/engines/native/bands.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "compiler/codegen/sources.h"
#include "compiler/driver/driver.h"
#include "compiler/engines/native/kernel.h"
#include "runtime/base/check.h"
#include "tests/host/attention.h"
#include "tests/host/kernels.h"

namespace attn::host {
namespace {

using namespace engines::native;

constexpr int kBatches = 3, kHeads = 2;

// Counts, for tiles of each batch and head: scores that masks show and no block has; hidden scores
// of full blocks; blocks that have no visible score; other blocks than full ones of which masks
// show all.
constexpr const char* kCheck = R"(
struct Found { int lost, shown, empty, masked; };
template <int kTile, int kBlock, int kStart, typename Bands, typename Mask>
__device__ void check(int tiles_end, int end, Bands bands, Mask mask, Found& found) {
  for (int first = 0; first < tiles_end; first += kTile) {
    const int last = ::min(first + kTile, tiles_end) - 1;
    const kernels::BandBlocks blocks =
        kernels::blocks_of_band<kBlock, kStart>(bands(kernels::Interval{first, last}), end);
    for (int n = -1; n <= blocks.all; ++n) {
      const int from = n < 0 ? 0 : blocks.first + n * kBlock;
      const int to = n < 0 ? blocks.first : n == blocks.all ? end : ::min(from + kBlock, end);
      bool any = false, all = true;
      for (int i = from; i < to; ++i) {
        for (int row = first; row <= last; ++row) {
          const bool is = mask(row, i);
          any |= is, all &= is;
        }
      }
      const bool listed = n >= 0 && n < blocks.all;
      const bool full = listed && n >= blocks.before && n < blocks.before + blocks.full;
      if (!listed && any) ++found.lost;
      if (full && !all) ++found.shown;
      if (listed && !any) ++found.empty;
      if (listed && !full && all) ++found.masked;
    }
  }
}
)";

// A block of threads checks a batch and head: columns, then rows.
const std::string kKernel = fmt::format(R"(
  const int b = blockIdx.x / {0}, h = blockIdx.x % {0};
  __syncthreads();  // a library of kernels that never wait would not have the emulated GPU
  check<32, 48, 16>(
      expressions.queries(b), expressions.keys(b),
      [&](kernels::Interval rows) {{ return expressions.columns(b, h, rows); }},
      [&](int row, int column) {{ return expressions.mask(b, h, row, column); }}, found[0]);
  check<32, 48, 16>(
      expressions.keys(b), expressions.queries(b),
      [&](kernels::Interval columns) {{ return expressions.rows(b, h, columns); }},
      [&](int column, int row) {{ return expressions.mask(b, h, row, column); }}, found[1]);
}}
)",
                                        kHeads);

struct Example {
  std::string mask;
  ir::Attention attention;
  plan::Program program;  // of one step
};

// Nothing for masks that are no band of columns and of rows.
std::optional<Example> example_of(const std::string& mask, int rows, int columns, bool bottom) {
  Example made{
      mask,
      attention_of(fmt::format(
          "attention f {{ dims B = {}, Hq = {}, Sq = {}, Skv = {}, D = 32; outputs o, lse;"
          "{} lengths q, kv; tensor n: i32[B]; tensor tree: i32[B, Sq]; param w: i32; mask {}; }}",
          kBatches, kHeads, rows, columns, bottom ? "align bottom_right;" : "", mask)),
      {}};
  auto of_columns = closed_band(made.attention, ir::Op::column_);
  const auto of_rows = closed_band(made.attention, ir::Op::row_);
  if (!of_columns || !of_rows) return std::nullopt;
  of_columns->text += of_rows->text;
  const Expressions expressions = expressions_of(made.attention, true, false);
  made.program.steps.emplace_back(plan::KernelStep{
      .outputs = {},
      .zeroed = {},
      .launches = {{.kernel = "check_bands",
                    .grid = {kBatches * kHeads, 1, 1},
                    .block = {1, 1, 1}}},
      .source = codegen::include_text("forward.cuh") + kCheck +
                expressions_text(made.attention, expressions, false, of_columns) +
                fmt::format("extern \"C\" __global__ void check_bands(Found* found{}) {{\n  {}{}",
                            parameters_text(expressions.inputs),
                            expressions_object(made.attention, expressions.inputs), kKernel)});
  return made;
}

struct Found {
  int lost = 0, shown = 0, empty = 0, masked = 0;
};

struct Inputs {
  std::array<int, kBatches> lengths_q{}, lengths_kv{}, n{};
  int w = 0;
  std::vector<int> tree{};  // [kBatches, rows]

  std::string to_text() const {
    return fmt::format("lengths q {} {} {}, kv {} {} {}, n {} {} {}, w {}", lengths_q[0],
                       lengths_q[1], lengths_q[2], lengths_kv[0], lengths_kv[1], lengths_kv[2],
                       n[0], n[1], n[2], w);
  }
};

// What the kernel finds of columns and of rows.
std::array<Found, 2> found_of(const Kernels& kernels, const Example& example, Inputs inputs) {
  std::array<Found, 2> found;
  void* const to = &found;
  std::vector<void*> pointers = {to}, arguments;
  const auto& step = std::get<plan::KernelStep>(example.program.steps[0]);
  const Expressions expressions = expressions_of(example.attention, true, false);
  for (const plan::OperandSource& source : expressions.inputs.operands) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&source);
    const std::string name = tensor == nullptr ? "w" : tensor->name;
    pointers.push_back(name == "w"           ? static_cast<void*>(&inputs.w)
                       : name == "n"         ? inputs.n.data()
                       : name == "tree"      ? inputs.tree.data()
                       : name == "lengths_q" ? inputs.lengths_q.data()
                                             : inputs.lengths_kv.data());
  }
  for (void*& pointer : pointers) {
    arguments.push_back(pointer == &inputs.w ? pointer : static_cast<void*>(&pointer));
  }
  const Status status = kernels.launch(step, step.launches[0], arguments.data(), gpu::Order{});
  EXPECT_TRUE(status.ok()) << status.error().to_text();
  return found;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}

  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::string_view one_of(std::span<const std::string_view> all) {
    return all[static_cast<std::size_t>(number(0, static_cast<int>(all.size()) - 1))];
  }

  std::string mask() {
    std::string text = term();
    for (int more = number(0, 2); more > 0; --more)
      text += (number(0, 3) > 0 ? " && " : " || ") + term();
    return text;
  }

  Inputs inputs(int rows, int columns) {
    Inputs made{.w = anything()};
    for (int& length : made.lengths_q)
      length = number(0, 3) == 0 ? number(0, 1) % rows : number(0, rows);
    for (int& length : made.lengths_kv)
      length = number(0, 3) == 0 ? number(0, 1) % columns : number(0, columns);
    for (int& n : made.n) n = anything();
    for (int i = 0; i < kBatches * rows; ++i) made.tree.push_back(number(INT32_MIN, INT32_MAX));
    return made;
  }

 private:
  std::string term() {
    constexpr std::string_view kConditions[] = {"n[b] > 10", "q_idx < w",          "kv_idx < n[b]",
                                                "h == 1",    "q_raw >= 40 + n[b]", "w < 0"};
    constexpr std::string_view kColumns[] = {
        "kv_idx",         "kv_idx + w",          "kv_idx - n[b] + 3", "2 * kv_idx",
        "kv_idx // 7",    "5 - 3 * kv_idx",      "-kv_idx",           "(kv_idx + n[b]) // 16",
        "kv_idx - q_idx", "abs(kv_idx - q_idx)", "q_idx - kv_idx",    "2 * q_idx - 3 * kv_idx"};
    constexpr std::string_view kRows[] = {"q_idx",
                                          "q_idx + w",
                                          "n[b]",
                                          "w",
                                          "40",
                                          "max(q_idx, n[b])",
                                          "q_idx // 16 * 16 + 15",
                                          "(q_idx + n[b]) // 16",
                                          "h * 8 + q_idx // 7",
                                          "min(2 * q_idx, w)",
                                          "where(h == 1, q_idx, n[b])",
                                          "-q_idx + 90"};
    constexpr std::string_view kSides[] = {"<", "<=", ">", ">=", "=="};
    if (number(0, 4) == 0) return std::string(one_of(kConditions));
    const std::string term =
        fmt::format("{} {} {}", one_of(kColumns), one_of(kSides), one_of(kRows));
    return number(0, 5) == 0 ? fmt::format("!({})", term) : term;
  }

  int anything() {
    constexpr int kFar[] = {0, 1, -1, 100, INT32_MAX, INT32_MIN, INT32_MAX - 100, INT32_MIN + 100};
    return number(0, 2) == 0 ? kFar[number(0, 7)] : number(-60, 160);
  }

  std::mt19937_64 random_;
};

Kernels compiled(const std::vector<Example>& examples) {
  std::vector<const plan::Program*> programs;
  for (const Example& each : examples) programs.push_back(&each.program);
  auto kernels = Kernels::compile(programs);
  ATTN_CHECK(kernels.ok(), kernels.error().to_text());
  return *kernels;
}

TEST(HostBands, HaveAllVisibleScoresAndHideNoneOfFullBlocks) {
  constexpr std::size_t kMasks = 80;
  constexpr int kInputs = 20;
  constexpr int kRows[] = {1, 7, 129}, kColumns[] = {1, 33, 150};
  Random random(1);
  std::vector<Example> examples;
  while (examples.size() < kMasks) {
    const int sizes = static_cast<int>(examples.size());
    auto made =
        example_of(random.mask(), kRows[sizes % 3], kColumns[sizes / 3 % 3], sizes % 2 == 0);
    if (made) examples.push_back(std::move(*made));
  }
  const Kernels kernels = compiled(examples);
  for (const Example& example : examples) {
    const ir::Dims& dims = example.attention.dims;
    for (int i = 0; i < kInputs; ++i) {
      const Inputs inputs =
          random.inputs(static_cast<int>(dims[ir::Dim::Sq]), static_cast<int>(dims[ir::Dim::Skv]));
      for (const Found& found : found_of(kernels, example, inputs)) {
        ASSERT_EQ(found.lost, 0) << example.mask << "; " << inputs.to_text();
        ASSERT_EQ(found.shown, 0) << example.mask << "; " << inputs.to_text();
      }
    }
  }
}

// What lists would have: no block without a visible score, and no masks where all is shown.
TEST(HostBands, HaveNoMoreBlocksThanLists) {
  std::vector<Example> examples;
  for (const char* mask : {"q_idx >= kv_idx", "kv_idx < n[b]", "kv_idx < n[b] || q_idx >= kv_idx",
                           "0 <= q_idx - kv_idx && q_idx - kv_idx < w", "q_idx <= kv_idx + w",
                           "q_idx // 40 == kv_idx // 40",
                           "(q_idx + n[b]) // 64 == (kv_idx + n[b]) // 64 && q_idx >= kv_idx",
                           "abs(q_idx - kv_idx) <= 50", "w < 0 || q_idx - kv_idx <= w"}) {
    auto made = example_of(mask, 200, 333, true);
    ASSERT_TRUE(made.has_value()) << mask;
    examples.push_back(std::move(*made));
  }
  const Kernels kernels = compiled(examples);
  const Inputs inputs{{200, 129, 7}, {333, 150, 97}, {100, 1, 49}, 70};
  for (const Example& example : examples) {
    for (const Found& found : found_of(kernels, example, inputs)) {
      EXPECT_EQ(found.lost + found.shown, 0) << example.mask;
      EXPECT_EQ(found.empty, 0) << example.mask;
      EXPECT_EQ(found.masked, 0) << example.mask;
    }
  }
}

// The bits of a tree of drafts decide about the last keys of each batch alone.
std::string with_bits(std::string mask) {
  const std::pair<std::string_view, std::string> words[] = {
      {"{}", "((tree[b, q_raw] >> clamp(kv_idx - (@), 0, 31) & 1) == 1)"},
      {"@", "lengths_kv[b] - lengths_q[b]"}};
  for (const auto& [word, text] : words) {
    for (auto at = mask.find(word); at != std::string::npos; at = mask.find(word))
      mask.replace(at, word.size(), text);
  }
  return mask;
}

TEST(HostBands, OfMasksThatAreInDoubtHideNothing) {
  std::vector<Example> examples;
  for (const char* mask :
       {"kv_idx < @ || {}", "!(kv_idx >= @ && !{})", "q_idx >= kv_idx && (kv_idx - (@) < 0 || {})",
        "where(kv_idx < @, q_idx >= kv_idx, {})", "where(kv_idx >= @, {}, q_idx - kv_idx < 320)",
        "(kv_idx < @ || {} || q_raw > 37) && q_idx - kv_idx <= 300",
        "q_idx >= kv_idx && q_idx - kv_idx < 300 || kv_idx >= @ && {}"}) {
    auto made = example_of(with_bits(mask), 40, 333, true);
    ASSERT_TRUE(made.has_value()) << mask;
    examples.push_back(std::move(*made));
  }
  const Kernels kernels = compiled(examples);
  Random random(2);
  for (const Example& example : examples) {
    for (int i = 0; i < 40; ++i) {
      const Inputs inputs = random.inputs(40, 333);
      for (const Found& found : found_of(kernels, example, inputs)) {
        ASSERT_EQ(found.lost, 0) << example.mask << "; " << inputs.to_text();
        ASSERT_EQ(found.shown, 0) << example.mask << "; " << inputs.to_text();
      }
    }
  }
}

// Blocks of the context are full: no row of a tile makes their end uncertain.
TEST(HostBands, OfMasksThatAreInDoubtEvaluateThemInTheLastBlocks) {
  const auto example = example_of(with_bits("kv_idx < @ || {}"), 40, 333, true);
  ASSERT_TRUE(example.has_value());
  Inputs inputs{{40, 40, 7}, {333, 150, 97}, {}, 0, std::vector<int>(3 * 40, 1)};
  const Found found = found_of(compiled({*example}), *example, inputs)[0];
  EXPECT_EQ(found.lost + found.shown, 0);
  EXPECT_EQ(found.masked, 0);
}

TEST(HostBands, AreNoneOfOtherMasks) {
  for (const char* mask :
       {"kv_idx < 4 || q_idx - kv_idx < w", "kv_idx % 3 == n[b]", "q_idx % 40 >= kv_idx - n[b]",
        "abs(q_idx - kv_idx) > w", "kv_idx != n[b]", "kv_idx * kv_idx < n[b]", "n[kv_idx % 3] == w",
        "n[q_idx % 3] >= kv_idx", "kv_idx * 0.5 < n[b]", "tree[b, q_idx] == tree[b, kv_idx % 20]",
        "kv_idx < 8 || tree[b, kv_idx % 20] == w", "kv_idx < n[b] || tree[b, kv_idx % 20] == w"}) {
    EXPECT_FALSE(example_of(mask, 20, 30, false).has_value()) << mask;
  }
}

}  // namespace
}  // namespace attn::host
