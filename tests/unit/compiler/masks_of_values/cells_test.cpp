#include "compiler/masks_of_values/cells.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/masks_of_values/known_values.h"
#include "compiler/reference/evaluate.h"
#include "compiler/reference/lifelike.h"
#include "tests/support/random_spec.h"
#include "tests/unit/compiler/pictures/spec_text.h"

namespace attn::masks_of_values {
namespace {

using ir::Dim;
using masks::Block;
using ::testing::HasSubstr;

io::HostTensor zeros(std::vector<std::int64_t> dims) {
  const auto count = static_cast<std::size_t>(io::element_count(dims));
  return {DType::f64, std::move(dims), std::vector<double>(count)};
}

// Inputs for which o tells the mask: equal scores, and v that is the identity.
reference::Inputs telling_inputs(const ir::Attention& attention) {
  const auto& d = attention.dims;
  reference::Inputs inputs;
  inputs.tensors["q"] = zeros({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dqk]});
  inputs.tensors["k"] = zeros({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dqk]});
  io::HostTensor& v = inputs.tensors["v"];
  v = zeros({d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Skv]});
  const auto size = static_cast<std::size_t>(d[Dim::Skv]);
  for (std::size_t i = 0; i < v.values.size(); i += size) v.values[i + i / size % size] = 1;
  return inputs;
}

// The attention whose o is 0 where a score is hidden.
ir::Attention telling(ir::Attention attention) {
  attention.dims.set(Dim::Dv, attention.dims[Dim::Skv]);
  attention.score = attention.dag.leaf(ir::Op::score_);
  attention.sink.reset();
  attention.dropout.reset();
  return attention;
}

std::vector<std::int64_t> dims_of(const ir::Attention& attention,
                                  const ir::CapturedTensor& tensor) {
  std::vector<std::int64_t> dims;
  for (const ir::ExprId extent : tensor.extents) {
    dims.push_back(ir::fold_integer(attention.dag, extent, attention.dims).value());
  }
  return dims;
}

struct Case {
  ir::Attention attention;
  reference::Bindings values;
  io::HostTensor o;
};

Case evaluated(const std::string& text, reference::Inputs given = {}) {
  Case result{pictures::attention_of(text), {}, {}};
  const ir::Attention attention = telling(result.attention);
  reference::Inputs inputs = telling_inputs(attention);
  inputs.tensors.merge(given.tensors);
  inputs.params.merge(given.params);
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    // What only the score reads.
    if (is_float(tensor.dtype)) inputs.tensors[tensor.name] = zeros(dims_of(attention, tensor));
  }
  result.values = reference::bind(attention, inputs, true).value();
  result.o = reference::evaluate(attention, inputs, {.unrounded = true}).value().o;
  return result;
}

// What the reference shows at a place, row by row.
std::vector<bool> shown_by_reference(const Case& of, const Place& place) {
  const auto& d = of.attention.dims;
  const std::int64_t scores = d[Dim::Sq] * d[Dim::Skv];
  const auto begin = of.o.values.begin() + (place.batch * d[Dim::Hq] + place.head) * scores;
  std::vector<bool> shown;
  for (auto at = begin; at != begin + scores; ++at) shown.push_back(*at != 0);
  return shown;
}

Block dense_block(const std::vector<bool>& shown, const ir::Dims& dims, const masks::BlockMap& map,
                  std::int64_t down, std::int64_t across) {
  bool any = false, all = true;
  for (std::int64_t row = down * map.rows; row < std::min((down + 1) * map.rows, dims[Dim::Sq]);
       ++row) {
    for (std::int64_t column = across * map.columns;
         column < std::min((across + 1) * map.columns, dims[Dim::Skv]); ++column) {
      const bool is = shown[static_cast<std::size_t>(row * dims[Dim::Skv] + column)];
      any |= is;
      all &= is;
    }
  }
  return all ? Block::full : any ? Block::partial : Block::empty;
}

void expect_blocks(const Case& of, const Place& place, const std::vector<bool>& shown) {
  const Cells cells = blocks_at(of.attention, of.values, place, 8, 4).value();
  ASSERT_EQ(cells.map.exactness, masks::Exactness::exact);
  for (std::int64_t row = 0; row < cells.map.height; ++row) {
    for (std::int64_t column = 0; column < cells.map.width; ++column) {
      ASSERT_EQ(cells.map.at(row, column),
                dense_block(shown, of.attention.dims, cells.map, row, column))
          << row << ", " << column;
    }
  }
  EXPECT_TRUE(cells.share.exact);
  EXPECT_EQ(cells.share.visible, std::ranges::count(shown, true));
}

// Scores and blocks, at every batch and head.
void expect_reference(const Case& of) {
  const auto& d = of.attention.dims;
  for (std::int64_t batch = 0; batch < d[Dim::B]; ++batch) {
    for (std::int64_t head = 0; head < d[Dim::Hq]; ++head) {
      const std::vector<bool> shown = shown_by_reference(of, {batch, head});
      const Cells cells = scores_at(of.attention, of.values, {batch, head}).value();
      ASSERT_EQ(cells.map.blocks.size(), shown.size());
      for (std::size_t i = 0; i < shown.size(); ++i) {
        ASSERT_EQ(cells.map.blocks[i], shown[i] ? Block::full : Block::empty) << i;
      }
      EXPECT_EQ(cells.share.visible, std::ranges::count(shown, true));
      expect_blocks(of, {batch, head}, shown);
    }
  }
}

TEST(Cells, OfRandomMasksAreWhatTheReferenceShows) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = attn::testing::random_spec(seed, 48);
    SCOPED_TRACE(text);
    expect_reference(evaluated(text));
    if (HasFatalFailure()) return;
  }
}

constexpr const char* kDocuments = R"(attention documents {
  dims B = 2, Hq = 3, Hkv = 1, Sq = 40, Skv = Sq, D = 8;
  tensor doc: i32[B, Skv] monotone runs(5);
  tensor blocks: bool[Hq, 5, 5];
  param near: i32;
  mask doc[b, q_idx] == doc[b, kv_idx] || abs(q_idx - kv_idx) < near;
  mask blocks[h, q_idx // 8, kv_idx // 8] || q_idx == kv_idx;
  outputs o;
})";

io::HostTensor lifelike_tensor(const ir::Attention& attention, const char* name,
                               std::vector<std::int64_t> dims, std::uint64_t seed) {
  const ir::CapturedTensor& tensor = *attention.find_tensor(name);
  std::vector<double> values = reference::lifelike(attention, tensor, dims, seed);
  return {tensor.dtype, std::move(dims), std::move(values)};
}

TEST(Cells, OfCapturedTensorsAreWhatTheReferenceShows) {
  const ir::Attention attention = pictures::attention_of(kDocuments);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    reference::Inputs inputs;
    inputs.tensors["doc"] = lifelike_tensor(attention, "doc", {2, 40}, seed);
    inputs.tensors["blocks"] = lifelike_tensor(attention, "blocks", {3, 5, 5}, seed);
    inputs.params["near"] = static_cast<double>(seed % 4);
    expect_reference(evaluated(kDocuments, std::move(inputs)));
  }
}

TEST(Cells, LengthsHideScores) {
  const char* text = R"(attention lengths {
    dims B = 3, Hq = 1, Sq = 20, Skv = 30, D = 8;
    align bottom_right;
    lengths q, kv;
    mask q_idx >= kv_idx;
    outputs o;
  })";
  reference::Inputs inputs;
  inputs.tensors["lengths_q"] = {DType::i32, {3}, {20, 7, 0}};
  inputs.tensors["lengths_kv"] = {DType::i32, {3}, {11, 30, 30}};
  expect_reference(evaluated(text, std::move(inputs)));
}

TEST(Cells, ManyBlocksTakeLittleTime) {
  const ir::Attention attention = pictures::attention_of(R"(attention long {
    dims B = 1, Hq = 1, Sq = 131072, Skv = Sq, D = 128;
    mask q_idx >= kv_idx && q_idx - kv_idx < 4096;
    outputs o;
  })");
  const Cells cells = blocks_at(attention, {}, {}, 128, 128).value();
  EXPECT_EQ(cells.map.exactness, masks::Exactness::exact);
  EXPECT_EQ(cells.map.count(Block::full), 31 * 1024 - 31 * 32 / 2);
  EXPECT_EQ(cells.map.count(Block::partial), 1024 + 992);
  EXPECT_TRUE(cells.share.exact);
  EXPECT_EQ(cells.share.visible, 4096.0 * 131072 - 4096.0 * 4095 / 2);
}

TEST(Cells, WhatIntervalsDoNotDecideIsEvaluated) {
  for (const char* mask : {"q_idx % -4 > -1 && kv_idx < 100", "sin(1.0 * q_idx * kv_idx) > 0.5",
                           "(q_idx * kv_idx & 7) == 5", "q_idx ** 2 % 7 == kv_idx % 7"}) {
    const Case of = evaluated(fmt::format(
        "attention f {{ dims B = 1, Hq = 1, Sq = 60, Skv = 130, D = 8; mask {}; }}", mask));
    const Share share = blocks_at(of.attention, of.values, {0, 0}, 16, 16).value().share;
    EXPECT_EQ(share.visible, std::ranges::count(shown_by_reference(of, {0, 0}), true)) << mask;
    EXPECT_TRUE(share.exact);
  }
}

TEST(Cells, BlocksWithAScoreThatReadsOutsideATensorAreAnError) {
  const auto blocks = [](const std::string& mask, double index) {
    const ir::Attention attention = pictures::attention_of(
        fmt::format("attention f {{ dims B = 1, Hq = 1, Sq = 600, Skv = 400, D = 8;"
                    "tensor t: i32[4]; tensor u: i32[3]; mask {}; }}",
                    mask));
    reference::Bindings values;
    values.tensors["t"] = {DType::i32, {4}, {1, 1, 1, 1}};
    values.tensors["u"] = {DType::i32, {3}, {0, index, 1}};
    return blocks_at(attention, values, {0, 0}, 128, 128);
  };
  EXPECT_TRUE(blocks("t[u[q_idx // 200]] > 0", 3).ok());
  const auto outside = blocks("t[u[q_idx // 200]] > 0", 4);
  ASSERT_FALSE(outside.ok());
  EXPECT_THAT(outside.error().message, HasSubstr("index 0 is 4, outside 0..3"));
  EXPECT_TRUE(blocks("t[u[q_idx // 200]] > 0 && q_idx // 200 != 1", 4).ok()) << "hidden";
  EXPECT_FALSE(blocks("t[u[q_idx // 200]] > 0 && kv_idx == 399", -1).ok());
  EXPECT_FALSE(blocks("8 % u[q_idx // 200] == 0 || kv_idx < 9", 4).ok()) << "divides by 0";
}

// Whatever those say whose indexes are inside.
TEST(Cells, ABlockThatIsPartlyOutsideATensorIsNotDecided) {
  const ir::Attention attention = pictures::attention_of(R"(attention f {
    dims B = 1, Hq = 1, Sq = 256, Skv = 512, D = 8;
    tensor t: bool[Skv];
    param n: i32;
    mask t[kv_idx + n];
  })");
  reference::Bindings values;
  values.tensors["t"] = {DType::boolean, {512}, std::vector<double>(512, 1)};
  values.params["n"] = 192;
  const KnownValues known(values);
  const masks::BlockMap map = block_map_at(attention, known, {0, 0}, 128, 128, 1);
  EXPECT_THAT(map.blocks,
              ::testing::ElementsAre(Block::full, Block::full, Block::partial, Block::partial,
                                     Block::full, Block::full, Block::partial, Block::partial));
}

TEST(Cells, ChangesOfScores) {
  const ir::Attention attention = pictures::attention_of(R"(attention change {
    dims B = 1, Hq = 1, Sq = 2, Skv = 2, D = 8;
    score 2 * score + kv_idx;
    mask q_idx >= kv_idx;
    outputs o;
  })");
  const std::vector<double> changes = changes_at(attention, {}, {}, 3).value();
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0], 3);
  EXPECT_TRUE(std::isnan(changes[1]));
  EXPECT_EQ(changes[3], 4);
}

}  // namespace
}  // namespace attn::masks_of_values
