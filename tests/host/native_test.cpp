// Runs the kernels of the engine `native` on an emulated GPU (gpu/gpu.h), in both orders, and
// compares their outputs with the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/host/attention.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

std::vector<std::string> specs_of(const char* folder) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / folder)) {
    if (entry.path().extension() == ".attn") {
      files.push_back(fmt::format("{}/{}", folder, entry.path().filename().string()));
    }
  }
  std::ranges::sort(files);
  return files;
}

// The specs of the engine's own tests have sizes that take them to certain paths.
tools::ShapeSet shapes_for(const std::string& spec) {
  return spec.starts_with("tests/gpu/native") ? tools::ShapeSet::own : tools::ShapeSet::all;
}

class HostNative : public ::testing::TestWithParam<std::string> {};

TEST_P(HostNative, IsTheReference) {
  const tools::SpecOutcome spec =
      tools::read_spec(ATTN_SOURCE_DIR "/" + GetParam(), {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  std::vector<Subject> subjects;
  for (const tools::Shape& shape : tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                                                    shapes_for(GetParam()), kLongest)) {
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    if (!bound.spec) continue;  // the spec does not support these sizes
    Subject subject{GetParam() + ", " + shape.name, bound.spec->attention, {}};
    const auto forward = driver::lower(subject.attention, "native", plan::Direction::forward);
    if (!forward.ok()) continue;
    for (const gpu::Order order : {gpu::Order::early_copies, gpu::Order::late_copies}) {
      subject.pairs.push_back({order == gpu::Order::early_copies ? "early copies" : "late copies",
                               *forward,
                               {},
                               order});
    }
    subjects.push_back(std::move(subject));
  }
  if (subjects.empty()) GTEST_SKIP() << "the engine refuses it";
  expect_reference(subjects);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostNative, ::testing::ValuesIn(specs_of("specs")), name_of);
INSTANTIATE_TEST_SUITE_P(Native, HostNative, ::testing::ValuesIn(specs_of("tests/gpu/native")),
                         name_of);

}  // namespace
}  // namespace attn::host
