// Runs kernels of warps (compiler/device/attn/mma_forward.cuh) on an emulated GPU, and compares
// their outputs with the reference: other specs in one of both orders for each size, specs of the
// engine's own tests in both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "tests/host/attention.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host::warps_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks
constexpr gpu::Order kOrders[] = {gpu::Order::early_copies, gpu::Order::late_copies};

std::vector<std::string> specs_of(const char* folder) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / folder)) {
    if (entry.path().extension() == ".attn")
      files.push_back(fmt::format("{}/{}", folder, entry.path().filename().string()));
  }
  std::ranges::sort(files);
  return files;
}

Result<plan::Program> lowered(const ir::Attention& attention) {
  return driver::lower(attention, "native", plan::Direction::forward, {.warp_groups = false});
}

class HostWarps : public ::testing::TestWithParam<std::string> {};

TEST_P(HostWarps, IsTheReference) {
  const tools::SpecOutcome spec =
      tools::read_spec(ATTN_SOURCE_DIR "/" + GetParam(), {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  const bool own = GetParam().starts_with("tests/gpu/native");
  std::vector<Subject> subjects;
  for (const tools::Shape& shape :
       tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                        own ? tools::ShapeSet::own : tools::ShapeSet::all, kLongest)) {
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    if (!bound.spec) continue;  // the spec does not support these sizes
    const auto forward = lowered(bound.spec->attention);
    if (!forward.ok()) continue;
    const gpu::Order order = kOrders[subjects.size() % std::size(kOrders)];
    Subject subject{GetParam() + ", " + shape.name, bound.spec->attention, {}};
    subject.pairs.push_back({order == gpu::Order::early_copies ? "early copies" : "late copies",
                             *forward,
                             {},
                             order,
                             tools::Unused::anything});
    subjects.push_back(std::move(subject));
  }
  if (subjects.empty()) GTEST_SKIP() << "the engine refuses it";
  expect_reference(subjects);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostWarps, ::testing::ValuesIn(specs_of("specs")), name_of);
INSTANTIATE_TEST_SUITE_P(Native, HostWarps, ::testing::ValuesIn(specs_of("tests/gpu/native")),
                         name_of);

}  // namespace
}  // namespace attn::host::warps_tests
