// append and merge on the stand-in for the driver, which runs their kernels as the host compiles
// them, against the same arithmetic written plainly. Includes no internal headers: see plan_file.h.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <attn.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/must.h"

namespace {

using attn::DType;
using attn::standin::must;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::string elements(DType type, const std::vector<float>& values) {
  std::string bytes(values.size() * attn::size_of(type), '\0');
  must(attn::from_f32(type, values.data(), values.size(), bytes.data()));
  return bytes;
}

// To the nearest; 8-bit floats saturate.
float rounded(DType type, float value) {
  if (type == DType::e4m3) value = std::clamp(value, -448.F, 448.F);
  if (type == DType::e5m2) value = std::clamp(value, -57344.F, 57344.F);
  float back = 0;
  must(attn::to_f32(type, elements(type, {value}).data(), 1, &back));
  return back;
}

// Device memory that holds elements from element `first` on.
class Tensor {
 public:
  Tensor(const attn::Runtime& runtime, DType type, const std::vector<float>& values,
         std::int64_t first = 0)
      : type_(type), first_(first * static_cast<std::int64_t>(attn::size_of(type))) {
    const std::string bytes = elements(type, values);
    count_ = values.size();
    memory_ = must(attn::Memory::allocate(
        runtime, static_cast<std::size_t>(first_) + std::max<std::size_t>(1, bytes.size())));
    must(memory_.upload(bytes.data(), bytes.size(), static_cast<std::size_t>(first_)));
  }
  void* data() const { return static_cast<char*>(memory_.data()) + first_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }
  std::vector<float> values() const {
    std::string bytes(count_ * attn::size_of(type_), '\0');
    must(memory_.download(bytes.data(), bytes.size(), static_cast<std::size_t>(first_)));
    std::vector<float> values(count_);
    must(attn::to_f32(type_, bytes.data(), count_, values.data()));
    return values;
  }

 private:
  DType type_;
  std::int64_t first_;
  std::size_t count_ = 0;
  attn::Memory memory_;
};

// Integers in device memory.
template <typename T>
attn::Memory uploaded(const attn::Runtime& runtime, const std::vector<T>& values) {
  auto memory = must(attn::Memory::allocate(runtime, values.size() * sizeof(T) + 1));
  must(memory.upload(values.data(), values.size() * sizeof(T)));
  return memory;
}

struct Rotary {
  std::int64_t dim = 0;  // 0: none
  bool interleaved = false;
  DType type = DType::f32;
};

// What an append is made with.
struct Case {
  std::int64_t rows = 7, heads = 5, width = 72;
  DType from = DType::bf16, to = DType::bf16;
  Rotary rotary = {};
  std::int64_t gap = 0;      // elements between rows of heads, in both tensors
  std::int64_t first = 0;    // of the elements in memory
  bool heads_first = false;  // in the pool
  float descale = 0;         // 0: none
};

constexpr std::int64_t kPages = 12, kPageSize = 16, kPositions = 11;

class Operations : public attn::standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    runtime_ = open();
  }
  void TearDown() override {
    runtime_ = {};
    StandinTest::TearDown();
  }
  static attn::Runtime open() {
    attn::RuntimeOptions options;
    options.cudnn_folder = attn::standin::folder();
    return must(attn::Runtime::open(options));
  }
  Tensor tensor(DType type, const std::vector<float>& values, std::int64_t first = 0) const {
    return Tensor(runtime_, type, values, first);
  }
  static void expect_error(const attn::Status& status, attn::Code code, const std::string& text) {
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(text));
  }
  static std::int64_t launches() {
    return attn::standin::cuda().control.calls("cuLaunchKernelEx", STANDIN_ANY);
  }

  void expect_appended(const Case& each);
  void expect_merged(DType type, bool heads_first, std::int64_t width, std::int64_t count);

  attn::Runtime runtime_;
};

// A head of a row, rotated.
std::vector<float> rotated(std::vector<float> row, const Rotary& rotary,
                           const std::vector<float>& cos, const std::vector<float>& sin,
                           std::int64_t position) {
  const std::int64_t half = rotary.dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    float& x = row[static_cast<std::size_t>(rotary.interleaved ? 2 * i : i)];
    float& y = row[static_cast<std::size_t>(rotary.interleaved ? 2 * i + 1 : half + i)];
    const float c = cos[static_cast<std::size_t>(position * half + i)];
    const float s = sin[static_cast<std::size_t>(position * half + i)];
    const volatile float xc = x * c, ys = y * s, yc = y * c, xs = x * s;
    x = xc - ys;
    y = yc + xs;
  }
  return row;
}

void Operations::expect_appended(const Case& each) {
  const std::int64_t row = each.heads * (each.width + each.gap);
  const Tensor k = tensor(each.from, random_values(each.rows * row + 1, 1), each.first);
  const std::int64_t line = each.width + each.gap;
  const std::int64_t page = kPageSize * each.heads * line;
  const Tensor pool =
      tensor(each.to, std::vector<float>(static_cast<std::size_t>(kPages * page), -2), each.first);
  const std::int64_t half = each.rotary.dim / 2;
  std::vector<float> cosines = random_values(kPositions * half + 1, 2), sines = cosines;
  std::ranges::reverse(sines);
  const Tensor cos = tensor(each.rotary.type, cosines), sin = tensor(each.rotary.type, sines);
  std::vector<std::int64_t> slots, positions;
  for (std::int64_t i = 0; i < each.rows; ++i) {
    slots.push_back(i % 3 == 1 ? -1 - i : i * 7 % (kPages * kPageSize));
    positions.push_back(i * 5 % kPositions);
  }
  const attn::Memory slot_memory = uploaded(runtime_, slots);
  const attn::Memory position_memory = uploaded(runtime_, positions);
  const Tensor descale = tensor(DType::f32, {each.descale});

  attn::AppendArguments arguments;
  arguments.rows = each.rows;
  arguments.k = attn::rows(k.data(), each.from, each.heads, each.width, row, line);
  arguments.k_pool = each.heads_first
                         ? attn::pool(pool.data(), each.to, page, line, kPageSize * line)
                         : attn::pool(pool.data(), each.to, page, each.heads * line, line);
  if (each.descale != 0) arguments.k_pool.descale = descale.as<const float>();
  arguments.pages = kPages;
  arguments.page_size = kPageSize;
  arguments.slot_mapping = static_cast<const std::int64_t*>(slot_memory.data());
  if (half > 0) {
    arguments.rotary = {cos.data(),
                        sin.data(),
                        static_cast<attn_dtype>(each.rotary.type),
                        ATTN_DTYPE_I64,
                        half,
                        half,
                        kPositions,
                        position_memory.data(),
                        each.rotary.dim,
                        each.rotary.interleaved,
                        0};
  }
  must(attn::append(runtime_, arguments, nullptr));

  const std::vector<float> given = k.values();
  std::vector<float> expected(static_cast<std::size_t>(kPages * page), -2);
  cosines = cos.values();
  sines = sin.values();
  for (std::int64_t i = 0; i < each.rows; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    if (slot < 0) continue;
    for (std::int64_t head = 0; head < each.heads; ++head) {
      const auto begin = given.begin() + i * row + head * line;
      const std::vector<float> values = rotated({begin, begin + each.width}, each.rotary, cosines,
                                                sines, positions[static_cast<std::size_t>(i)]);
      const std::int64_t at = slot / kPageSize * page +
                              (each.heads_first ? (head * kPageSize + slot % kPageSize) * line
                                                : (slot % kPageSize * each.heads + head) * line);
      for (std::int64_t d = 0; d < each.width; ++d) {
        const float value = values[static_cast<std::size_t>(d)];
        expected[static_cast<std::size_t>(at + d)] =
            rounded(each.to, each.descale != 0 ? value / each.descale : value);
      }
    }
  }
  EXPECT_EQ(pool.values(), expected) << each.rows << " x " << each.heads << " x " << each.width;
}

TEST_F(Operations, AppendWritesRowsToTheirSlots) {
  for (const std::int64_t width : {64, 72, 576}) {
    for (const std::int64_t heads : {1, 5}) {
      for (const bool heads_first : {false, true})
        expect_appended({.heads = heads, .width = width, .heads_first = heads_first});
    }
  }
  expect_appended({.rows = 129, .heads = 1, .width = 128});
  expect_appended({.rows = 1});
}

TEST_F(Operations, AppendTakesAnyStrideAndAddress) {
  for (const std::int64_t gap : {1, 2, 4, 8}) expect_appended({.width = 64, .gap = gap});
  for (const std::int64_t first : {1, 2, 4}) expect_appended({.width = 64, .first = first});
  expect_appended({.width = 65});
  expect_appended({.width = 1, .from = DType::f32, .to = DType::f16, .first = 1});
}

TEST_F(Operations, AppendConvertsBetweenTypes) {
  for (const DType from : {DType::f16, DType::bf16, DType::f32}) {
    for (const DType to : {DType::f16, DType::bf16, DType::f32, DType::e4m3, DType::e5m2})
      expect_appended({.rows = 3, .width = 72, .from = from, .to = to});
  }
}

TEST_F(Operations, AppendRotates) {
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t dim : {2, 6, 32, 36, 64}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16})
        expect_appended({.width = 72, .rotary = {dim, interleaved, type}});
    }
    expect_appended({.width = 65, .rotary = {64, interleaved}});
    expect_appended({.width = 64, .rotary = {64, interleaved}, .gap = 1});
    expect_appended({.width = 64, .to = DType::e4m3, .rotary = {64, interleaved}, .descale = 0.5});
  }
}

TEST_F(Operations, AppendDividesByTheScaleAndSaturates) {
  for (const DType to : {DType::e4m3, DType::e5m2}) {
    for (const float descale : {3.F, 1e-3F, 1e-6F, 300.F})
      expect_appended({.width = 64, .from = DType::f32, .to = to, .descale = descale});
  }
}

TEST_F(Operations, RoundingTo8BitsIsThatOfTheHost) {
  std::vector<float> given;
  for (int exponent = -20; exponent < 20; ++exponent) {
    for (int eighth = 16; eighth < 64; ++eighth)
      given.push_back(std::ldexp(static_cast<float>(eighth % 2 == 0 ? eighth : -eighth), exponent));
  }
  given.insert(given.end(), {kInfinity, -kInfinity, 0.F, -0.F, 448.F, 464.F, 465.F});
  const auto count = static_cast<std::int64_t>(given.size());
  const attn::Memory slots = uploaded<std::int64_t>(runtime_, {0});
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    given.back() = kNaN;
    const Tensor k = tensor(DType::f32, given);
    const Tensor pool = tensor(type, std::vector<float>(given.size()));
    attn::AppendArguments arguments;
    arguments.rows = arguments.pages = arguments.page_size = 1;
    arguments.k = attn::rows(k.data(), DType::f32, 1, count);
    arguments.k_pool = attn::pool(pool.data(), type, 0, 0, 0);
    arguments.slot_mapping = static_cast<const std::int64_t*>(slots.data());
    must(attn::append(runtime_, arguments, nullptr));
    const std::vector<float> stored = pool.values();
    EXPECT_TRUE(std::isnan(stored.back()));
    for (std::size_t i = 0; i + 1 < given.size(); ++i)
      EXPECT_EQ(stored[i], rounded(type, given[i])) << given[i];
  }
}

// Keys, values of another width and queries of a row, in one call.
struct Layer {
  Layer(const attn::Runtime& runtime, std::int64_t rows)
      : k(runtime, DType::bf16, random_values(rows * 2 * 8, 1)),
        v(runtime, DType::bf16, random_values(rows * 3 * 4, 2)),
        q(runtime, DType::f32, random_values(rows * 4 * 8, 3)),
        q_out(runtime, DType::f32, std::vector<float>(static_cast<std::size_t>(rows * 4 * 8), -2)),
        k_pool(runtime, DType::bf16, std::vector<float>(8 * 2 * 8, -2)),
        v_pool(runtime, DType::bf16, std::vector<float>(8 * 3 * 4, -2)),
        cos(runtime, DType::f32, random_values(3 * 2, 4)),
        sin(runtime, DType::f32, random_values(3 * 2, 5)) {
    arguments.rows = rows;
    arguments.k = attn::rows(k.data(), DType::bf16, 2, 8);
    arguments.v = attn::rows(v.data(), DType::bf16, 3, 4);
    arguments.k_pool = attn::pool(k_pool.data(), DType::bf16, 4 * 2 * 8, 2 * 8, 8);
    arguments.v_pool = attn::pool(v_pool.data(), DType::bf16, 4 * 3 * 4, 3 * 4, 4);
    arguments.pages = 2;
    arguments.page_size = 4;
    arguments.rotary = {cos.data(), sin.data(), ATTN_DTYPE_F32, ATTN_DTYPE_I32, 2, 2, 3, nullptr, 4,
                        0,          0};
    arguments.q = attn::rows(q.data(), DType::f32, 4, 8);
    arguments.q_out = attn::rows(q_out.data(), DType::f32, 4, 8);
  }

  Tensor k, v, q, q_out, k_pool, v_pool, cos, sin;
  attn::AppendArguments arguments;
};

TEST_F(Operations, AppendTakesKeysValuesAndQueriesInOneLaunch) {
  const Layer layer(runtime_, 5), in_place(runtime_, 5);
  const attn::Memory slots = uploaded<std::int64_t>(runtime_, {7, -1, 8, 2, 3});
  const attn::Memory positions = uploaded<std::int32_t>(runtime_, {1, 0, 2, 3, -1});
  attn::Memory outside = uploaded<std::int32_t>(runtime_, {10});
  for (const Layer* each : {&layer, &in_place}) {
    attn::AppendArguments arguments = each->arguments;
    arguments.slot_mapping = static_cast<const std::int64_t*>(slots.data());
    arguments.rotary.positions = positions.data();
    arguments.outside = static_cast<std::int32_t*>(outside.data());
    if (each == &in_place) arguments.q_out = arguments.q;
    must(attn::append(runtime_, arguments, nullptr));
  }
  EXPECT_EQ(launches(), 2);
  std::int32_t count = 0;
  must(outside.download(&count, sizeof count));
  EXPECT_EQ(count, 10 + 2 * 3) << "slot 8, and the positions 3 and -1";

  const std::vector<float> v = layer.v.values(), cos = layer.cos.values(), sin = layer.sin.values();
  std::vector<float> v_pool(8 * 3 * 4, -2);
  std::copy_n(v.begin(), 12, v_pool.begin() + 7 * 12);  // rows 3 and 4 have no position
  EXPECT_EQ(layer.v_pool.values(), v_pool);

  const std::vector<float> q = layer.q.values();
  std::vector<float> expected(5 * 4 * 8, -2), expected_in_place = q;
  const std::int64_t position_of[] = {1, 0, 2};
  for (std::size_t i = 0; i < 3 * 4; ++i) {
    const auto head = q.begin() + static_cast<std::ptrdiff_t>(i * 8);
    const auto turned = rotated({head, head + 8}, {4}, cos, sin, position_of[i / 4]);
    std::ranges::copy(turned, expected.begin() + static_cast<std::ptrdiff_t>(i * 8));
    std::ranges::copy(turned, expected_in_place.begin() + static_cast<std::ptrdiff_t>(i * 8));
  }
  EXPECT_EQ(layer.q_out.values(), expected);
  EXPECT_EQ(in_place.q.values(), expected_in_place);
}

TEST_F(Operations, AppendWithoutRowsEnqueuesNothing) {
  attn::AppendArguments arguments;
  must(attn::append(runtime_, arguments, nullptr));
  attn::MergeArguments merged;
  must(attn::merge(runtime_, merged, nullptr));
  EXPECT_EQ(launches(), 0);
}

TEST_F(Operations, AppendNamesWhatDoesNotFit) {
  const Layer layer(runtime_, 2);
  const attn::Memory integers = uploaded<std::int64_t>(runtime_, {0, 1});
  using Arguments = attn::AppendArguments;
  const std::pair<std::function<void(Arguments&)>, const char*> wrong[] = {
      {[](Arguments& a) { a.k.data = a.v.data = a.q.data = nullptr; }, "k, v and q are all absent"},
      {[](Arguments& a) { a.k_pool = {}; }, "k is given without k_pool"},
      {[](Arguments& a) { a.v = {}; }, "v_pool is given without v"},
      {[](Arguments& a) { a.slot_mapping = nullptr; }, "slot_mapping must not be NULL"},
      {[](Arguments& a) { a.k.dtype = ATTN_DTYPE_E4M3; }, "k has dtype e4m3, but must have f16"},
      {[](Arguments& a) { a.v_pool.dtype = ATTN_DTYPE_I32; }, "v_pool has dtype i32, but must"},
      {[](Arguments& a) { a.k.heads = 0; }, "k has 0 heads of 8 elements"},
      {[](Arguments& a) { a.v.width = -1; }, "v has 3 heads of -1 elements"},
      {[](Arguments& a) { a.k.data = static_cast<char*>(a.k.data) + 1; },
       "not a multiple of the 2"},
      {[](Arguments& a) { a.pages = 0; }, "the pools have 0 pages of 4 rows"},
      {[](Arguments& a) { a.pages = 1 << 30; }, "1 to 2^31 - 1"},
      {[](Arguments& a) { a.k_pool.descale = a.rotary.cos == nullptr ? nullptr : &kNaN; },
       "k_pool has dtype bf16 and a descale"},
      {[](Arguments& a) { a.rotary.sin = nullptr; }, "cos and sin must be given together"},
      {[](Arguments& a) { a.rotary.positions = nullptr; }, "cos is given without positions"},
      {[](Arguments& a) { a.rotary.positions_dtype = ATTN_DTYPE_F32; }, "positions has dtype f32"},
      {[](Arguments& a) { a.rotary.dtype = ATTN_DTYPE_I64; }, "cos has dtype i64"},
      {[](Arguments& a) { a.rotary.table_rows = 0; }, "cos and sin have 0 rows"},
      {[](Arguments& a) { a.rotary.rotary_dim = 3; }, "rotary_dim is 3; it must be even"},
      {[](Arguments& a) { a.rotary.rotary_dim = 10; }, "rotary_dim is 10"},
      {[](Arguments& a) { a.rotary = {}; }, "q is given without cos and sin"},
      {[](Arguments& a) { a.q_out = {}; }, "q is given without q_out"},
      {[](Arguments& a) { a.q = {}; }, "q_out is given without q"},
      {[](Arguments& a) { a.q_out.heads = 3; },
       "q_out has 3 heads of 8 elements, but q has 4 of 8"},
      {[](Arguments& a) { a.q_out = a.q, a.q_out.row_stride = 33; }, "q is written in place, but"},
      {[](Arguments& a) { a.k = a.q = a.q_out = {}, a.k_pool = {}; }, "without k or q to rotate"},
  };
  for (const auto& [edit, text] : wrong) {
    Arguments arguments = layer.arguments;
    arguments.slot_mapping = static_cast<const std::int64_t*>(integers.data());
    arguments.rotary.positions = integers.data();
    edit(arguments);
    expect_error(attn::append(runtime_, arguments, nullptr), attn::Code::binding, text);
  }
  Arguments arguments = layer.arguments;
  arguments.rows = -1;
  expect_error(attn::append(runtime_, arguments, nullptr), attn::Code::invalid_argument, "rows");
  expect_error(attn::append({}, arguments, nullptr), attn::Code::invalid_argument, "the runtime");
  EXPECT_EQ(launches(), 0);
}

void Operations::expect_merged(DType type, bool heads_first, std::int64_t width,
                               std::int64_t count) {
  constexpr std::int64_t kRows = 7, kHeads = 3;
  const std::int64_t rows = kRows * kHeads, all = (count + 1) * rows;
  const Tensor o = tensor(type, random_values(all * width, 1));
  std::vector<float> lse = random_values(all, 2);
  for (std::int64_t i = 0; i < all; ++i) {
    if (i / rows == 0 && i % 3 == 0) lse[static_cast<std::size_t>(i)] = -kInfinity;
    if (i / rows == 1 && i % 3 == 1) lse[static_cast<std::size_t>(i)] = kInfinity;
    if (i % rows == 6) lse[static_cast<std::size_t>(i)] = -kInfinity;  // in all results
  }
  const Tensor statistics = tensor(DType::f32, lse);
  const Tensor out = tensor(type, std::vector<float>(static_cast<std::size_t>(rows * width)));
  const Tensor out_lse = tensor(DType::f32, std::vector<float>(static_cast<std::size_t>(rows)));

  attn::MergeArguments arguments;
  arguments.rows = kRows;
  const std::int64_t row = heads_first ? 1 : kHeads, head = heads_first ? kRows : 1;
  arguments.a = {
      attn::rows(o.data(), type, kHeads, width), statistics.as<const float>(), row, head, 1, 0, 0};
  char* const others = o.as<char>() + rows * width * attn::size_of(type);
  arguments.b = {attn::rows(others, type, kHeads, width),
                 statistics.as<const float>() + rows,
                 row,
                 head,
                 count,
                 rows * width,
                 rows};
  arguments.out = attn::rows(out.data(), type, kHeads, width);
  arguments.lse = out_lse.as<float>();
  arguments.lse_row_stride = row;
  arguments.lse_head_stride = head;
  must(attn::merge(runtime_, arguments, nullptr));

  const std::vector<float> given = o.values(), merged = out.values(), sums = out_lse.values();
  const double tolerance = type == DType::f32 ? 1e-6 : type == DType::f16 ? 1e-3 : 8e-3;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t place = i / kHeads * row + i % kHeads * head;
    const auto weight = [&](std::int64_t result) {
      const float each = lse[static_cast<std::size_t>(result * rows + place)];
      return std::isinf(each) ? 0 : std::exp(static_cast<double>(each));
    };
    double sum = 0;
    for (std::int64_t result = 0; result <= count; ++result) sum += weight(result);
    const float found = sums[static_cast<std::size_t>(place)];
    if (sum == 0)
      EXPECT_EQ(found, -kInfinity);
    else
      EXPECT_NEAR(found, std::log(sum), 1e-6);
    for (std::int64_t d = 0; d < width; ++d) {
      double expected = 0;
      for (std::int64_t result = 0; result <= count && sum > 0; ++result) {
        expected +=
            weight(result) / sum * given[static_cast<std::size_t>((result * rows + i) * width + d)];
      }
      const float value = merged[static_cast<std::size_t>(i * width + d)];
      ASSERT_NEAR(value, expected, tolerance * (1 + std::abs(expected))) << i << ", " << d;
    }
  }
}

TEST_F(Operations, MergeIsTheAttentionOverAllKeys) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const bool heads_first : {false, true}) {
      expect_merged(type, heads_first, 64, 1);
      expect_merged(type, heads_first, 72, 3);
    }
  }
  expect_merged(DType::bf16, true, 576, 2);
  expect_merged(DType::bf16, false, 5, 1);
}

// What has no keys may hold anything; an lse of NaN is that of the row.
TEST_F(Operations, MergeDoesNotReadResultsWithoutKeys) {
  const Tensor a = tensor(DType::f32, {kNaN, kInfinity, 3, 4, 5, 6});
  const Tensor b = tensor(DType::f32, {7, 8, kNaN, kNaN, 11, 12});
  const Tensor a_lse = tensor(DType::f32, {-kInfinity, -kInfinity, kNaN});
  const Tensor b_lse = tensor(DType::f32, {1, -kInfinity, 0});
  attn::MergeArguments arguments;
  arguments.rows = 3;
  arguments.a = {attn::rows(a.data(), DType::f32, 1, 2), a_lse.as<const float>(), 1, 1, 1, 0, 0};
  arguments.b = {attn::rows(b.data(), DType::f32, 1, 2), b_lse.as<const float>(), 1, 1, 1, 0, 0};
  arguments.out = arguments.a.o;  // in place
  arguments.lse = a_lse.as<float>();
  arguments.lse_row_stride = 1;
  must(attn::merge(runtime_, arguments, nullptr));
  const std::vector<float> o = a.values(), lse = a_lse.values();
  EXPECT_EQ(std::vector(o.begin(), o.begin() + 4), (std::vector<float>{7, 8, 0, 0}));
  EXPECT_EQ(lse[0], 1);
  EXPECT_EQ(lse[1], -kInfinity);
  EXPECT_TRUE(std::isnan(lse[2]) && std::isnan(o[4]) && std::isnan(o[5]));
}

// Threads of a row read its lse before one of them writes it.
TEST_F(Operations, MergeMayWriteInPlace) {
  constexpr std::int64_t kWidth = 576;
  const std::vector<float> values = random_values(kWidth, 1), others = random_values(kWidth, 2);
  const Tensor a = tensor(DType::f32, values), b = tensor(DType::f32, others);
  const Tensor lse = tensor(DType::f32, {100, 1});
  attn::MergeArguments arguments;
  arguments.rows = 1;
  arguments.a = {attn::rows(a.data(), DType::f32, 1, kWidth), lse.as<const float>(), 1, 1, 1, 0, 0};
  arguments.b = {
      attn::rows(b.data(), DType::f32, 1, kWidth), lse.as<const float>() + 1, 1, 1, 1, 0, 0};
  arguments.out = arguments.b.o;
  arguments.lse = lse.as<float>() + 1;
  must(attn::merge(runtime_, arguments, nullptr));
  EXPECT_EQ(b.values(), values);
  EXPECT_EQ(lse.values(), (std::vector<float>{100, 100}));
}

TEST_F(Operations, MergeNamesWhatDoesNotFit) {
  const Tensor o = tensor(DType::f32, std::vector<float>(16)), lse = tensor(DType::f32, {0, 0});
  using Arguments = attn::MergeArguments;
  Arguments right;
  right.rows = 2;
  right.a = {attn::rows(o.data(), DType::f32, 1, 4), lse.as<const float>(), 1, 1, 1, 0, 0};
  right.out = right.a.o;
  const std::pair<std::function<void(Arguments&)>, const char*> wrong[] = {
      {[](Arguments& a) { a.a = {}; }, "a and b are both absent"},
      {[](Arguments& a) { a.a.count = -1; }, "a has a count of -1"},
      {[](Arguments& a) { a.a.lse = nullptr; }, "a and a's lse must be given together"},
      {[](Arguments& a) { a.b.count = 1; }, "b and b's lse must be given together"},
      {[](Arguments& a) { a.out.data = nullptr; }, "out must not be NULL"},
      {[](Arguments& a) { a.out.width = 8; }, "a has 1 heads of 4 elements, but out has 1 of 8"},
      {[](Arguments& a) { a.out.dtype = ATTN_DTYPE_E4M3; }, "out has dtype e4m3"},
      {[](Arguments& a) { a.a.o.dtype = ATTN_DTYPE_F64; }, "a has dtype f64"},
      {[](Arguments& a) { a.rows = std::int64_t{1} << 40; }, "out has 1099511627776 rows"},
      {[](Arguments& a) { a.out.dtype = ATTN_DTYPE_F16; }, "a is written in place, but with"},
      {[](Arguments& a) { a.out.row_stride = 8; }, "a is written in place, but with"},
      {[](Arguments& a) { a.lse = const_cast<float*>(a.a.lse); },
       "a is written in place, but with"},
  };
  for (const auto& [edit, text] : wrong) {
    Arguments arguments = right;
    edit(arguments);
    expect_error(attn::merge(runtime_, arguments, nullptr), attn::Code::binding, text);
  }
  right.rows = -1;
  expect_error(attn::merge(runtime_, right, nullptr), attn::Code::invalid_argument, "rows is -1");
  EXPECT_EQ(launches(), 0);
}

// A function of the stand-in for the driver.
template <typename Function>
Function* driver_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

class OperationsInGraphs : public Operations {
 protected:
  static attn::MergeArguments merge_of(const Tensor& o, const Tensor& lse) {
    attn::MergeArguments arguments;
    arguments.rows = 1;
    arguments.a = {attn::rows(o.data(), DType::f32, 1, 4), lse.as<const float>(), 1, 1, 1, 0, 0};
    arguments.out = arguments.a.o;
    return arguments;
  }
};

TEST_F(OperationsInGraphs, TheFirstCallMayBeCaptured) {
  const Tensor o = tensor(DType::f32, {1, 2, 3, 4}), lse = tensor(DType::f32, {-kInfinity});
  {
    attn::Stream stream = must(attn::Stream::create(runtime_));
    constexpr int kGlobal = 0;
    void *graph = nullptr, *executable = nullptr;
    EXPECT_EQ(driver_function<int(void*, int)>("cuStreamBeginCapture_v2")(stream.handle(), kGlobal),
              0);
    must(attn::merge(runtime_, merge_of(o, lse), stream.handle()));
    EXPECT_EQ(driver_function<int(void*, void**)>("cuStreamEndCapture")(stream.handle(), &graph),
              0);
    EXPECT_EQ(o.values(), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(driver_function<int(void**, void*, unsigned long long)>(
                  "cuGraphInstantiateWithFlags")(&executable, graph, 0),
              0);
    EXPECT_EQ(driver_function<int(void*, void*)>("cuGraphLaunch")(executable, stream.handle()), 0);
    must(stream.synchronize());
    EXPECT_EQ(o.values(), (std::vector<float>(4, 0)));
    driver_function<int(void*)>("cuGraphExecDestroy")(executable);
    driver_function<int(void*)>("cuGraphDestroy")(graph);
  }
}

TEST_F(OperationsInGraphs, ThreadsLoadTheKernelsOnce) {
  const Tensor o = tensor(DType::f32, {1, 2, 3, 4}), lse = tensor(DType::f32, {0});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { must(attn::merge(runtime_, merge_of(o, lse), nullptr)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(launches(), 4);
  EXPECT_EQ(attn::standin::cuda().control.calls("cuModuleLoadData", STANDIN_ANY), 1);
}

TEST_F(OperationsInGraphs, AnOlderGpuIsRefused) {
  runtime_ = {};
  const int sms[] = {75};
  attn::standin::cuda().set_devices(1, sms);
  runtime_ = open();
  const Tensor o = tensor(DType::f32, {1, 2, 3, 4}), lse = tensor(DType::f32, {0});
  expect_error(attn::merge(runtime_, merge_of(o, lse), nullptr), attn::Code::unsupported,
               "compute capability 7.5, but libattn's own kernels need 8.0");
}

}  // namespace
