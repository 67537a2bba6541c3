// Runs the kernels of the engine `native` on an emulated GPU (gpu/gpu.h), and compares their
// outputs with the reference: specs of the engine's own tests in both orders, other specs, which
// have the same kernels with other expressions, with each size in one of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>

#include "tests/host/attention.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

// Specs whose gradients are compared, too; each takes many seconds.
constexpr std::string_view kTrained[] = {"specs/bias_head.attn",
                                         "specs/causal.attn",
                                         "specs/dilated_window.attn",
                                         "specs/document_causal.attn",
                                         "specs/dropout_causal.attn",
                                         "specs/dropout_mask.attn",
                                         "specs/gqa_5to1.attn",
                                         "specs/padding.attn",
                                         "specs/sigmoid_causal.attn",
                                         "specs/softcap.attn",
                                         "specs/squared.attn",
                                         "tests/gpu/native/backward_bias.attn",
                                         "tests/gpu/native/backward_bias_own.attn",
                                         "tests/gpu/native/backward_depth_256.attn",
                                         "tests/gpu/native/backward_divided_heads.attn",
                                         "tests/gpu/native/backward_divided_lists.attn",
                                         "tests/gpu/native/backward_divided_turns.attn",
                                         "tests/gpu/native/backward_gather.attn",
                                         "tests/gpu/native/backward_learned.attn",
                                         "tests/gpu/native/backward_learned_rest.attn",
                                         "tests/gpu/native/backward_learned_thd.attn",
                                         "tests/gpu/native/backward_sigmoid.attn",
                                         "tests/gpu/native/backward_sigmoid_learned.attn",
                                         "tests/gpu/native/backward_splits.attn",
                                         "tests/gpu/native/backward_tables.attn",
                                         "tests/gpu/native/backward_thd.attn",
                                         "tests/gpu/native/backward_thd_of_keys.attn",
                                         "tests/gpu/native/backward_vectors.attn",
                                         "tests/gpu/native/backward_widths.attn",
                                         "tests/gpu/native/backward_widths_24_200.attn",
                                         "tests/gpu/native/deterministic.attn"};

const char* text_of(gpu::Order order) {
  return order == gpu::Order::early_copies ? "early copies" : "late copies";
}

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

constexpr gpu::Order kOrders[] = {gpu::Order::early_copies, gpu::Order::late_copies};

// Of the size of that number.
std::span<const gpu::Order> orders_of(const std::string& spec, std::size_t number) {
  if (spec.starts_with("tests/gpu/native")) return kOrders;
  return std::span(kOrders).subspan(number % std::size(kOrders), 1);
}

class HostNative : public ::testing::TestWithParam<std::string> {
 protected:
  // The pair of programs that a training runs, if the engine has a backward of it.
  static void add_gradients(std::vector<Subject>& subjects, const std::string& shape,
                            const ir::Attention& attention, std::span<const gpu::Order> orders) {
    Subject subject{GetParam() + ", gradients, " + shape, driver::training_forward(attention), {}};
    const auto forward = driver::lower(subject.attention, "native", plan::Direction::forward);
    const auto backward = driver::lower(subject.attention, "native", plan::Direction::backward);
    ASSERT_TRUE(forward.ok()) << forward.error().to_text();
    ASSERT_TRUE(backward.ok()) << backward.error().to_text();
    for (const gpu::Order order : orders)
      subject.pairs.push_back({text_of(order), *forward, *backward, order});
    subjects.push_back(std::move(subject));
  }
};

TEST_P(HostNative, IsTheReference) {
  const tools::SpecOutcome spec =
      tools::read_spec(ATTN_SOURCE_DIR "/" + GetParam(), {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  std::vector<Subject> subjects;
  std::size_t sizes = 0;
  for (const tools::Shape& shape : tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                                                    shapes_for(GetParam()), kLongest)) {
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    if (!bound.spec) continue;  // the spec does not support these sizes
    const auto orders = orders_of(GetParam(), sizes++);
    const bool trained = std::ranges::find(kTrained, GetParam()) != std::end(kTrained);
    if (trained && shape.name != "scaled") {
      add_gradients(subjects, shape.name, bound.spec->attention, orders);
    }
    Subject subject{GetParam() + ", " + shape.name, bound.spec->attention, {}};
    const auto forward = driver::lower(subject.attention, "native", plan::Direction::forward);
    if (!forward.ok()) continue;
    for (const gpu::Order order : orders)
      subject.pairs.push_back({text_of(order), *forward, {}, order});
    subjects.push_back(std::move(subject));
  }
  if (subjects.empty()) {
    EXPECT_TRUE(GetParam() == "specs/head_dim_100.attn" || spec.spec->attention.is_mxfp8())
        << "the engine refuses it";
    GTEST_SKIP() << "the engine refuses it";
  }
  expect_reference(subjects);
}

TEST(HostNativeSpecs, TrainedOnesExist) {
  std::vector<std::string> all = specs_of("specs");
  std::ranges::copy(specs_of("tests/gpu/native"), std::back_inserter(all));
  for (const std::string_view spec : kTrained) {
    EXPECT_TRUE(std::ranges::find(all, spec) != all.end()) << spec;
  }
}

// Some blocks of keys are divided, others are not.
TEST(HostNativeSpecs, OrderedPartsAreAmongOtherItems) {
  const tools::SpecOutcome spec = tools::read_spec(
      ATTN_SOURCE_DIR "/tests/gpu/native/backward_divided_turns.attn", {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  const plan::Program backward =
      driver::lower(spec.spec->attention, "native", plan::Direction::backward).value();
  const auto& step = std::get<plan::KernelStep>(backward.steps.back());
  EXPECT_NE(step.source.find("divided_blocks"), std::string::npos);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostNative, ::testing::ValuesIn(specs_of("specs")), name_of);
INSTANTIATE_TEST_SUITE_P(Native, HostNative, ::testing::ValuesIn(specs_of("tests/gpu/native")),
                         name_of);

}  // namespace
}  // namespace attn::host
