// Runs 8-bit attentions by kernels of warps (compiler/device/attn/mma_rows.cuh widens their rows)
// on an emulated GPU, and compares outputs, gradients and largest magnitudes with the reference:
// the specs of tests/gpu/fp8 and tests/gpu/fp8_training, sizes that end within tiles, pages, and
// rows that begin anywhere. Specs take turns with GPUs. Rows past the lengths are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"

namespace attn::host::narrow_warps_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

target::Context context_of(plan::Direction direction, std::size_t turn) {
  constexpr std::int64_t kGpus[] = {80, 90, 89};
  target::Context context;
  context.direction = direction;
  context.rewrites.warp_groups = false;
  context.gpu.sm = kGpus[turn % std::size(kGpus)];
  return context;
}

// Adds the forward, and with `trains` the pair of programs that a training runs.
void add(const std::string& text, const ir::Attention& attention, bool trains, std::size_t turn,
         std::vector<Subject>& subjects) {
  Subject subject{text, trains ? driver::training_forward(attention) : attention, {}};
  const bool early = turn % 2 == 0;
  Pair pair{early ? "early copies" : "late copies",
            {},
            {},
            early ? gpu::Order::early_copies : gpu::Order::late_copies,
            tools::Unused::anything};
  const auto forward =
      driver::lower(subject.attention, "native", context_of(plan::Direction::forward, turn));
  ASSERT_TRUE(forward.ok()) << text << ": " << forward.error().to_text();
  pair.forward = *forward;
  if (trains) {
    const auto backward =
        driver::lower(subject.attention, "native", context_of(plan::Direction::backward, turn));
    ASSERT_TRUE(backward.ok()) << text << ": " << backward.error().to_text();
    pair.backward = *backward;
  }
  subject.pairs.push_back(std::move(pair));
  subjects.push_back(std::move(subject));
}

// Not those that state lengths of their own sizes.
std::vector<std::string> specs_in(const char* folder) {
  constexpr const char* kOfOwnSizes[] = {"fp8/padding", "fp8/padding_causal", "fp8/pages_72"};
  const std::filesystem::path root = ATTN_SOURCE_DIR "/tests/gpu";
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
    const std::string name = entry.path().lexically_relative(root).replace_extension();
    if (std::ranges::find(kOfOwnSizes, name) == std::end(kOfOwnSizes))
      paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

void expect_reference_of(const std::string& path, Turns turns) {
  const bool trains = path.find("fp8_training") != std::string::npos;
  std::vector<Subject> subjects;
  for_each_shape(path, kLongest, "scaled", turns,
                 [&](const std::string& text, const ir::Attention& attention, std::size_t turn) {
                   add(text, attention, trains, turn, subjects);
                 });
  ASSERT_FALSE(subjects.empty());
  expect_reference(subjects);
}

class HostNarrowWarps : public ::testing::TestWithParam<std::string> {};
TEST_P(HostNarrowWarps, AreTheReference) { expect_reference_of(GetParam(), Turns::one); }

class NightlyHostNarrowWarps : public HostNarrowWarps {};
TEST_P(NightlyHostNarrowWarps, AreTheReference) { expect_reference_of(GetParam(), Turns::all); }

constexpr const char* kScales =
    "descale_q = 0.75, descale_k = 1.5, descale_v = 0.5, scale_s = 256, descale_s = 1 / 256";
constexpr const char* kScalesOfGradients = ", descale_do = 0.5, scale_dp = 64, descale_dp = 1 / 64";
constexpr const char* kScalesOfOutputs =
    ", scale_o = 64, descale_o = 1 / 64, scale_dq = 16, scale_dk = 16, scale_dv = 16";

std::string trained(const char* types, bool narrow) {
  return fmt::format("dtype e4m3; quantize per_tensor, {}{}{}{}; outputs o, lse; grad q, k, v; ",
                     types, kScales, kScalesOfGradients, narrow ? kScalesOfOutputs : "");
}
std::string forward_of(const char* dtype, const char* types, const char* outputs) {
  return fmt::format("dtype {}; quantize per_tensor, {}{}{}; outputs {}; ", dtype, types, kScales,
                     std::string_view(types).empty() ? ", scale_o = 64" : "", outputs);
}

// Rows that see nothing, batches without keys, sizes that end within a tile and a block, and parts
// of keys.
TEST(HostNarrowWarpsSizes, AreTheReference) {
  std::vector<Subject> subjects;
  for (const auto& [rows, keys, depth] : {std::tuple(1, 1, 8),
                                          {7, 129, 64},
                                          {129, 7, 128},
                                          {1, 1333, 72},
                                          {60, 75, 104},
                                          {70, 90, 184},
                                          {65, 130, 256}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, D = {}; ", rows, keys, depth);
    const std::string all[] = {
        forward_of("e4m3", "", "o, lse, amax_s, amax_o") + "lengths q, kv;",
        forward_of("e5m2", "o: bf16, ", "o, lse, max, amax_s") +
            "mask q_idx > kv_idx + 3; dropout 0.2;",
        forward_of("e4m3", "o: f16, ", "o, amax_o") + "layout thd; score 20 * tanh(score / 20);"};
    for (const std::string& clauses : all) {
      const std::string text = sizes + clauses;
      add(text, attention_of("attention f { " + text + " }"), false, subjects.size(), subjects);
    }
  }
  expect_reference(subjects);
}

TEST(HostNarrowWarpsTrainingSizes, AreTheReference) {
  std::vector<Subject> subjects;
  std::size_t turn = 0;
  for (const auto& [rows, keys, depth] : {std::tuple(1, 1, 8),
                                          {7, 129, 64},
                                          {129, 7, 128},
                                          {177, 201, 48},
                                          {70, 90, 184},
                                          {65, 130, 256}}) {
    const std::string sizes =
        fmt::format("dims B = 3, Hq = 5, Hkv = 1, Sq = {}, Skv = {}, D = {}; ", rows, keys, depth);
    const std::string all[] = {
        trained("do: e5m2, gradients: e5m2, ", true) + "lengths q, kv;",
        trained("o: bf16, gradients: bf16, ", false) + "mask q_idx > kv_idx + 3; deterministic;",
        trained("", true) + "layout thd;"};
    const std::string text = sizes + all[turn % 3];
    add(text, attention_of("attention f { " + text + " }"), true, turn++, subjects);
  }
  expect_reference(subjects);
}

// Pages of any size, rows that begin anywhere, elements that are apart, and rows that heads share.
TEST(HostNarrowWarpsLayouts, AreTheReference) {
  std::vector<Subject> subjects;
  for (const char* clauses :
       {"dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 93, D = 72; layout paged(page = 16); lengths "
        "q, kv; mask q_idx >= kv_idx;",
        "dims B = 3, Hq = 2, Hkv = 1, Sq = 1, Skv = 301, D = 8; layout paged(page = 1, tables = "
        "2);",
        "dims B = 2, Hq = 4, Hkv = 2, Sq = 40, Skv = 50, D = 40; layout q: strides(4 * Sq * 43, "
        "43, "
        "4 * 43, 1), k: strides(1, 2, 4, 200), v: strides(Skv * 40, 0, 40, 1), o: strides(Sq * "
        "168, 42, 168, 1);",
        "dims B = 2, Hq = 4, Hkv = 2, Sq = 33, Skv = 70, D = 104; layout q: thd, v: paged(page = "
        "5), k: strides(Skv * 216, 108, 216, 1);"}) {
    const std::string text = forward_of("e4m3", "", "o, lse, amax_s, amax_o") + clauses;
    add(text, attention_of("attention f { " + text + " }"), false, subjects.size(), subjects);
  }
  const std::string paged =
      "dims B = 3, Hq = 4, Hkv = 2, Sq = 70, Skv = 93, D = 64; layout paged(page = 16); lengths q, "
      "kv; mask q_idx >= kv_idx; grad q; ";
  std::string scales = trained("do: e5m2, ", true);
  scales.erase(scales.find("grad"));
  add(paged, attention_of("attention f { " + scales + paged + " }"), true, 0, subjects);
  expect_reference(subjects);
}

// Keys and values of 8 bits beside queries of 16: the specs of caches, with scales of heads and of
// keys, and rows that begin anywhere.
class HostNarrowCaches : public ::testing::TestWithParam<std::string> {};
TEST_P(HostNarrowCaches, AreTheReference) { expect_reference_of(GetParam(), Turns::one); }
class NightlyHostNarrowCaches : public HostNarrowCaches {};
TEST_P(NightlyHostNarrowCaches, AreTheReference) { expect_reference_of(GetParam(), Turns::all); }

TEST(HostNarrowCachesOfAnyRows, AreTheReference) {
  std::vector<Subject> subjects;
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 33, Skv = 93, ";
  for (const char* clauses :
       {"D = 21; dtype bf16, k: e4m3, v: i8; quantize kv(head); layout paged(page = 7); lengths "
        "kv;",
        "D = 40; dtype bf16, k: i8, v: e5m2; quantize kv(token_head); layout k: strides(Skv * 90, "
        "45, 90, 1), v: strides(1, 2, 4, 4 * Skv); mask q_idx + 40 >= kv_idx;",
        "D = 64; dtype bf16, k: e4m3, v: e4m3; quantize kv(token_head); layout thd;"}) {
    const std::string text = sizes + clauses + " outputs o, lse;";
    add(text, attention_of("attention f { " + text + " }"), false, subjects.size(), subjects);
  }
  expect_reference(subjects);
}

std::vector<std::string> specs_of_caches() {
  std::vector<std::string> paths = {ATTN_SOURCE_DIR "/specs/cache_fp8.attn",
                                    ATTN_SOURCE_DIR "/specs/cache_int8.attn"};
  for (const std::string& path : specs_in("native")) {
    if (std::filesystem::path(path).stem().string().starts_with("cache_")) paths.push_back(path);
  }
  return paths;
}

std::string name_of(const ::testing::TestParamInfo<std::string>& path) {
  const std::filesystem::path of = path.param;
  return of.parent_path().stem().string() + "_" + of.stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostNarrowCaches, ::testing::ValuesIn(specs_of_caches()), name_of);
INSTANTIATE_TEST_SUITE_P(Specs, NightlyHostNarrowCaches, ::testing::ValuesIn(specs_of_caches()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Forward, HostNarrowWarps, ::testing::ValuesIn(specs_in("fp8")), name_of);
INSTANTIATE_TEST_SUITE_P(Training, HostNarrowWarps, ::testing::ValuesIn(specs_in("fp8_training")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Forward, NightlyHostNarrowWarps, ::testing::ValuesIn(specs_in("fp8")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Training, NightlyHostNarrowWarps,
                         ::testing::ValuesIn(specs_in("fp8_training")), name_of);

}  // namespace
}  // namespace attn::host::narrow_warps_tests
