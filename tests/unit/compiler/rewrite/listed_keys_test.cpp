// Attentions over lists, against those whose keys are gathered.
#include "compiler/rewrite/listed_keys.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/compiler/masks/spec_example.h"
#include "tests/unit/compiler/reference/problem.h"

namespace attn::rewrite {
namespace {

using reference::Inputs;
using reference::Outputs;
using reference::testing::tensor;

constexpr std::int64_t kBatches = 2, kRows = 3, kListed = 4, kKeys = 7, kDepth = 8, kHeads = 2;

ir::Attention gathered(const std::string& clauses) {
  return masks::testing::of_spec(
      "attention f { dims B = 2, Hq = 4, Hkv = 2, Sq = 3, Skv = 7, D = 8;"
      "tensor chosen: i32[B, Sq, 4]; tensor count: i32[B, Sq]; tensor bias: f32[B, Skv];"
      "gather chosen, count; align bottom_right;" +
      clauses + " outputs o, lse; }");
}

Inputs inputs_of(const ir::Attention& attention) {
  Inputs inputs = reference::testing::random_inputs(attention);
  inputs.tensors["chosen"] = tensor(
      {2, 3, 4}, {0, 1, 2, 3, 6, 6, 6, 0, -1, 5, -1, 2, 4, 4, 9, 99, -1, -1, -1, -1, 6, 3, 0, -7});
  inputs.tensors["count"] = tensor({2, 3}, {4, 4, 4, 2, 4, 3});
  inputs.tensors["bias"] = reference::testing::random_tensor({2, 7}, 9);
  return inputs;
}

// The keys or values of each list, [B Sq, Hkv, 4, D]; what is no key is 0.
io::HostTensor of_lists(const io::HostTensor& from, const io::HostTensor& chosen) {
  io::HostTensor made = tensor({kBatches * kRows, kHeads, kListed, kDepth}, {});
  for (std::int64_t row = 0; row < kBatches * kRows; ++row) {
    for (std::int64_t at = 0; at < kHeads * kListed * kDepth; ++at) {
      const std::int64_t head = at / kDepth / kListed, n = at / kDepth % kListed;
      const auto key =
          static_cast<std::int64_t>(chosen.values[static_cast<std::size_t>(row * kListed + n)]);
      const std::int64_t place =
          ((row / kRows * kHeads + head) * kKeys + key) * kDepth + at % kDepth;
      const bool is_key = key >= 0 && key < kKeys;
      made.values.push_back(is_key ? from.values[static_cast<std::size_t>(place)] : 0);
    }
  }
  return made;
}

// [B Sq, Hq, D] of [B, Hq, Sq, D], with as many elements of a row.
std::vector<double> by_rows(const std::vector<double>& values, std::size_t width) {
  std::vector<double> made;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / width / 4, head = i / width % 4;
    made.push_back(values[((row / kRows * 4 + head) * kRows + row % kRows) * width + i % width]);
  }
  return made;
}

Outputs computed(const ir::Attention& attention, const Inputs& inputs) {
  const Result<Outputs> outputs = reference::evaluate(attention, inputs, {.unrounded = true});
  EXPECT_TRUE(outputs.ok()) << outputs.error().message;
  return outputs.ok() ? *outputs : Outputs();
}

TEST(ListedKeys, OfRowsAsBatchesAreTheGathered) {
  for (const char* clauses :
       {"", "mask q_idx >= kv_idx;",
        "score score * (1 + q_raw) + bias[b, kv_idx] * h; mask kv_idx % 3 != 1; sink 0.5;"}) {
    const ir::Attention attention = gathered(clauses);
    Inputs inputs = inputs_of(attention);
    const Outputs wanted = computed(attention, inputs);
    const ir::Attention rows = with_rows_as_batches(with_keys_listed(attention, true));
    ASSERT_TRUE(ir::verify(rows).ok()) << ir::verify(rows).error().message;
    EXPECT_TRUE(rows.masks.empty());
    inputs.tensors["k"] = of_lists(inputs.tensors.at("k"), inputs.tensors.at("chosen"));
    inputs.tensors["v"] = of_lists(inputs.tensors.at("v"), inputs.tensors.at("chosen"));
    inputs.tensors["q"] =
        tensor({kBatches * kRows, 4, 1, kDepth}, by_rows(inputs.tensors.at("q").values, kDepth));
    const Outputs made = computed(rows, inputs);
    for (const auto& [of, by, width] : {std::tuple(&wanted.o, &made.o, std::size_t{kDepth}),
                                        std::tuple(&wanted.lse, &made.lse, std::size_t{1})}) {
      const std::vector<double> values = by_rows(of->values, width);
      ASSERT_EQ(values.size(), by->values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isinf(values[i]))
          EXPECT_EQ(by->values[i], values[i]) << clauses << i;
        else
          EXPECT_NEAR(by->values[i], values[i], 1e-12) << clauses << i;
      }
    }
  }
}

TEST(ListedKeys, PositionsReadFailWhereListsAreWrong) {
  const ir::Attention attention = gathered("lengths kv; mask q_idx >= kv_idx;");
  const ir::Attention checked = with_positions_read(attention);
  ASSERT_TRUE(ir::verify(checked).ok()) << ir::verify(checked).error().message;
  Inputs inputs = inputs_of(checked);
  inputs.tensors["lengths_kv"] = tensor({2}, {4, 2});
  inputs.tensors["keys"] = tensor({7}, std::vector<double>(7, 0));
  inputs.tensors["list"] = tensor({5}, std::vector<double>(5, 0));
  const auto is_right = [&](const char* name, std::size_t at, double value) {
    Inputs changed = inputs;
    changed.tensors[name].values[at] = value;
    return reference::evaluate(checked, changed, {}).ok();
  };
  EXPECT_TRUE(is_right("chosen", 0, 6));
  EXPECT_TRUE(is_right("chosen", 0, -1));
  EXPECT_TRUE(is_right("chosen", 14, 99)) << "behind the count";
  EXPECT_FALSE(is_right("chosen", 0, 7));
  EXPECT_FALSE(is_right("chosen", 12, 7)) << "also past the length, where masks hide";
  EXPECT_FALSE(is_right("chosen", 0, -2));
  EXPECT_TRUE(is_right("count", 0, 0));
  EXPECT_FALSE(is_right("count", 0, -1));
  EXPECT_FALSE(is_right("count", 0, 5));
}

}  // namespace
}  // namespace attn::rewrite
