// Runs the backward of 8-bit attentions (compiler/device/attn/backward_widening.cuh) on an emulated
// GPU, behind their forward, and compares outputs, gradients and largest magnitudes with the
// reference: every spec of tests/gpu/fp8_training, and sizes that end within tiles. Rows past the
// lengths are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"

namespace attn::host::narrow_training_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks
constexpr const char* kFolder = ATTN_SOURCE_DIR "/tests/gpu/fp8_training";

std::vector<std::string> specs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

// Adds the pair of programs that a training runs; copies are early and late in turns.
void add(const std::string& text, const ir::Attention& attention, std::vector<Subject>& subjects) {
  Subject subject{text, driver::training_forward(attention), {}};
  const auto forward = driver::lower(subject.attention, "native", plan::Direction::forward);
  const auto backward = driver::lower(subject.attention, "native", plan::Direction::backward);
  ASSERT_TRUE(forward.ok()) << text << ": " << forward.error().to_text();
  ASSERT_TRUE(backward.ok()) << text << ": " << backward.error().to_text();
  const bool early = subjects.size() % 2 == 0;
  subject.pairs.push_back({early ? "early copies" : "late copies", *forward, *backward,
                           early ? gpu::Order::early_copies : gpu::Order::late_copies,
                           tools::Unused::anything});
  subjects.push_back(std::move(subject));
}

class HostNarrowTraining : public ::testing::TestWithParam<std::string> {};

TEST_P(HostNarrowTraining, IsTheReference) {
  std::vector<Subject> subjects;
  for_each_shape(fmt::format("{}/{}.attn", kFolder, GetParam()), kLongest, "scaled", Turns::all,
                 [&](const std::string& text, const ir::Attention& attention, std::size_t) {
                   add(text, attention, subjects);
                 });
  ASSERT_FALSE(subjects.empty());
  expect_reference(subjects);
}

constexpr const char* kScales =
    "descale_q = 0.75, descale_k = 1.5, descale_v = 0.5, scale_s = 256, descale_s = 1 / 256, "
    "descale_do = 0.5, scale_dp = 64, descale_dp = 1 / 64";
constexpr const char* kScalesOfOutputs =
    ", scale_o = 64, descale_o = 1 / 64, scale_dq = 16, scale_dk = 16, scale_dv = 16";

std::string quantized(const char* types, bool narrow) {
  return fmt::format("dtype e4m3; quantize per_tensor, {}{}{}; outputs o, lse; grad q, k, v; ",
                     types, kScales, narrow ? kScalesOfOutputs : "");
}

// Rows that see nothing, batches without keys, and sizes that end within a tile and a block; head
// dimensions whose rows of 8 bits TMA does not read.
TEST(HostNarrowTrainingSizes, AreTheReference) {
  std::vector<Subject> subjects;
  for (const auto& [rows, keys, depth] : {std::tuple(1, 1, 8),
                                          {7, 129, 64},
                                          {129, 7, 128},
                                          {1, 333, 72},
                                          {177, 201, 48},
                                          {60, 75, 104},
                                          {70, 90, 184},
                                          {65, 130, 256}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, D = {}; ", rows, keys, depth);
    for (const std::string& clauses :
         {quantized("do: e5m2, gradients: e5m2, ", true) + "lengths q, kv;",
          quantized("o: bf16, gradients: bf16, ", false) +
              "mask q_idx > kv_idx + 3; deterministic;",
          quantized("", true) + "layout thd;"}) {
      add(sizes + clauses, attention_of("attention f { " + sizes + clauses + " }"), subjects);
    }
  }
  EXPECT_EQ(subjects.size(), 24U);
  expect_reference(subjects);
}

// Rows that begin anywhere, elements that are apart, and rows that heads share.
TEST(HostNarrowTrainingLayouts, AreTheReference) {
  std::vector<Subject> subjects;
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 50, D = 40; ";
  for (const char* layout :
       {"layout q: strides(4 * Sq * 43, 43, 4 * 43, 1), k: strides(1, 2, 4, 200), v: strides(Skv * "
        "40, "
        "0, 40, 1), o: strides(Sq * 168, 42, 168, 1); grad q, k;",
        "layout q: thd, k: strides(Skv * 40, 0, 40, 1), v: strides(45, 90, 180, 1); grad q, v;",
        "layout packed_kv; grad k;"}) {
    std::string clauses = quantized("", true);
    clauses.erase(clauses.find("grad"));
    clauses += layout;
    add(sizes + clauses, attention_of("attention f { " + sizes + clauses + " }"), subjects);
  }
  expect_reference(subjects);
}

// Every subset of gradients; with none of q, k and v, kernels make amax_dp alone.
TEST(HostNarrowTrainingGradients, OfEverySubsetAreTheReference) {
  std::vector<Subject> subjects;
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 70, Skv = 133, D = 40; ";
  const std::string learned =
      "learn sinks: f32[Hq]; sink sinks[h]; learn slopes: f32[Hq]; score score + slopes[h] * "
      "(kv_idx - q_idx) / 64; mask kv_idx - q_idx <= 63; ";
  for (const char* wanted : {"sinks", "slopes", "sinks, slopes", "q", "k", "v", "q, v", "q, k",
                             "k, sinks", "q, k, v, sinks, slopes"}) {
    std::string clauses = quantized("do: e5m2, gradients: e5m2, ", true);
    clauses.erase(clauses.find("grad q"));
    clauses += learned + "grad " + wanted + "; ";
    if (subjects.size() % 3 == 1) clauses += "layout thd; ";
    if (subjects.size() % 3 == 2) clauses += "deterministic; lengths q, kv; ";
    add(sizes + clauses, attention_of("attention f { " + sizes + clauses + " }"), subjects);
  }
  expect_reference(subjects);
}

// Products add up many terms that are alike, where fewer bits than those of f32 would be lost.
TEST(HostNarrowTrainingSums, OfEqualValuesAreRight) {
  const ir::Attention attention = driver::training_forward(
      attention_of("attention f { dims B = 1, Hq = 2, Hkv = 1, Sq = 5, Skv = 8192, D = 16; " +
                   quantized("", true) + "}"));
  const Pair pair{"native", driver::lower(attention, "native", plan::Direction::forward).value(),
                  driver::lower(attention, "native", plan::Direction::backward).value()};
  reference::Inputs inputs =
      tools::make_inputs(attention, {}, tools::Missing::pattern, tools::Needs::gradients)
          .value()
          .values;
  for (const char* name : {"k", "v", "do"}) std::ranges::fill(inputs.tensors.at(name).values, 1.0);
  reference::Options options;
  options.sizes = true;
  const tools::ReferenceGradients reference =
      tools::run_reference_gradients(attention, inputs, true, options).value();
  const auto outputs = outputs_of(pair, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
  for (const tools::Comparison& each :
       tools::compare(*outputs, reference.outputs, tools::Types(attention), reference.sizes)) {
    EXPECT_TRUE(each.agrees()) << each.name << ": " << each.why;
  }
}

// The language wants positive scales, and kernels take what is bound: of 0 they make what the
// reference makes of a number that nothing is left of.
TEST(HostNarrowTrainingScales, OfZeroMakeNoNaN) {
  const ir::Attention attention = driver::training_forward(
      attention_of("attention f { dims B = 1, Hq = 2, Hkv = 1, Sq = 70, Skv = 90, D = 40; mask "
                   "kv_idx - q_idx <= 20; learn sinks: f32[Hq]; sink sinks[h]; " +
                   quantized("", true) + "}"));
  const Pair pair{"native", driver::lower(attention, "native", plan::Direction::forward).value(),
                  driver::lower(attention, "native", plan::Direction::backward).value()};
  const reference::Inputs inputs =
      tools::make_inputs(attention, {}, tools::Missing::pattern, tools::Needs::gradients)
          .value()
          .values;
  reference::Options options;
  options.sizes = true;
  for (const char* scale : {"descale_q", "descale_k", "descale_v", "descale_o", "descale_do"}) {
    SCOPED_TRACE(scale);
    reference::Inputs changed = inputs;
    double& value = changed.tensors.at(scale).values[0];
    value = 0x1p-100;
    const tools::ReferenceGradients reference =
        tools::run_reference_gradients(attention, changed, true, options).value();
    value = 0;
    const auto outputs = outputs_of(pair, changed);
    ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
    for (const auto& [name, expected] : reference.outputs) {
      const std::vector<double>& values = outputs->at(name).values;
      double largest = 0, off = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_FALSE(std::isnan(values[i])) << name;
        if (!std::isfinite(expected.values[i])) continue;
        largest = std::max(largest, std::abs(expected.values[i]));
        off = std::max(off, std::abs(values[i] - expected.values[i]));
      }
      EXPECT_LE(off, 0.15 * largest + 0x1p-80) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, HostNarrowTraining, ::testing::ValuesIn(specs()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attn::host::narrow_training_tests
