// Runs the kernels of the engine `native` on an emulated GPU (gpu/gpu.h), and compares their
// outputs with the reference: each spec at one size in one order, in turns, and in the night at
// every size: specs of the engine's own tests in both orders, other specs, which have the same
// kernels with other expressions, with each size in one of them. Rows past the lengths are NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <span>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host::native_tests {
namespace {

constexpr std::int64_t kLongest = 300;  // rows and columns: several tiles and blocks

// Specs whose gradients are compared, too; each takes many seconds.
constexpr std::string_view kTrained[] = {"specs/alphafold_gated.attn",
                                         "specs/bias_head.attn",
                                         "specs/causal.attn",
                                         "specs/dilated_window.attn",
                                         "specs/differential.attn",
                                         "specs/document_causal.attn",
                                         "specs/dropout_causal.attn",
                                         "specs/dropout_mask.attn",
                                         "specs/fox.attn",
                                         "specs/gated.attn",
                                         "specs/gqa_5to1.attn",
                                         "specs/merge_by_lse.attn",
                                         "specs/nsa.attn",
                                         "specs/padding.attn",
                                         "specs/sigmoid_causal.attn",
                                         "specs/softcap.attn",
                                         "specs/qk_norm.attn",
                                         "specs/rope_causal.attn",
                                         "specs/squared.attn",
                                         "specs/swin_v2.attn",
                                         "tests/gpu/native/any_depth.attn",
                                         "tests/gpu/native/any_depth_even.attn",
                                         "tests/gpu/native/any_rows.attn",
                                         "tests/gpu/native/backward_bias.attn",
                                         "tests/gpu/native/backward_bias_own.attn",
                                         "tests/gpu/native/backward_depth_256.attn",
                                         "tests/gpu/native/backward_divided_heads.attn",
                                         "tests/gpu/native/backward_dropout_lengths.attn",
                                         "tests/gpu/native/backward_divided_lists.attn",
                                         "tests/gpu/native/backward_divided_turns.attn",
                                         "tests/gpu/native/backward_fox.attn",
                                         "tests/gpu/native/backward_gather.attn",
                                         "tests/gpu/native/backward_learned.attn",
                                         "tests/gpu/native/backward_learned_rest.attn",
                                         "tests/gpu/native/backward_learned_thd.attn",
                                         "tests/gpu/native/backward_loops.attn",
                                         "tests/gpu/native/backward_lse.attn",
                                         "tests/gpu/native/backward_lse_dilated.attn",
                                         "tests/gpu/native/backward_lse_shared.attn",
                                         "tests/gpu/native/backward_lse_thd.attn",
                                         "tests/gpu/native/backward_mask_table.attn",
                                         "tests/gpu/native/backward_pages.attn",
                                         "tests/gpu/native/backward_prologue.attn",
                                         "tests/gpu/native/backward_prologue_of_k.attn",
                                         "tests/gpu/native/backward_scale_0.attn",
                                         "tests/gpu/native/backward_scale_0_table.attn",
                                         "tests/gpu/native/backward_sigmoid.attn",
                                         "tests/gpu/native/backward_sigmoid_learned.attn",
                                         "tests/gpu/native/backward_splits.attn",
                                         "tests/gpu/native/backward_sums.attn",
                                         "tests/gpu/native/backward_sums_thd.attn",
                                         "tests/gpu/native/backward_tables.attn",
                                         "tests/gpu/native/backward_thd.attn",
                                         "tests/gpu/native/backward_thd_of_keys.attn",
                                         "tests/gpu/native/backward_vectors.attn",
                                         "tests/gpu/native/backward_wide.attn",
                                         "tests/gpu/native/backward_widths.attn",
                                         "tests/gpu/native/backward_widths_24_200.attn",
                                         "tests/gpu/native/band_chunks.attn",
                                         "tests/gpu/native/band_divided.attn",
                                         "tests/gpu/native/band_heads.attn",
                                         "tests/gpu/native/band_prefixes.attn",
                                         "tests/gpu/native/band_thd.attn",
                                         "tests/gpu/native/band_tree_trained.attn",
                                         "tests/gpu/native/branches_differential.attn",
                                         "tests/gpu/native/branches_packed.attn",
                                         "tests/gpu/native/branches_sparse.attn",
                                         "tests/gpu/native/branches_summed.attn",
                                         "tests/gpu/native/branches_weights.attn",
                                         "tests/gpu/native/deterministic.attn",
                                         "tests/gpu/native/epilogue_alone.attn",
                                         "tests/gpu/native/epilogue_gate.attn",
                                         "tests/gpu/native/epilogue_learned.attn",
                                         "tests/gpu/native/epilogue_lists.attn",
                                         "tests/gpu/native/epilogue_thd.attn",
                                         "tests/gpu/native/epilogue_weight.attn",
                                         "tests/gpu/native/wide_tree.attn"};

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

const double kNan = std::nan("");

constexpr gpu::Order kOrders[] = {gpu::Order::early_copies, gpu::Order::late_copies};

// Orders for the size of that number.
std::span<const gpu::Order> orders_of(const std::string& spec, std::size_t number) {
  if (spec.starts_with("tests/gpu/native")) return kOrders;
  return std::span(kOrders).subspan(number % std::size(kOrders), 1);
}

// Short forms have tests of their own (short_test.cpp); here every second size has none.
target::Rewrites forms_of(std::size_t number) {
  target::Rewrites rewrites;
  rewrites.short_forms = number % 2 == 1;
  return rewrites;
}

bool is_trained(const std::string& spec) {
  return std::ranges::find(kTrained, spec) != std::end(kTrained);
}

// Attentions of the spec at its sizes, with their names; those that it does not support are left
// out.
using Sized = std::vector<std::pair<std::string, ir::Attention>>;
Sized sizes_of(const std::string& name, const tools::Spec& spec) {
  Sized all;
  for (const tools::Shape& shape :
       tools::shapes_of(*spec.source, spec.attention, {}, shapes_for(name), kLongest)) {
    const auto bound = tools::analyze_spec(spec.source, shape.bindings, tools::Format::text);
    if (bound.spec) all.emplace_back(shape.name, bound.spec->attention);
  }
  return all;
}

// Subjects of a spec: the program of its forward, unless the engine refuses it.
class Subjects {
 public:
  explicit Subjects(std::string spec) : spec_(std::move(spec)) {}

  void add_forward(const std::string& size, const ir::Attention& attention,
                   std::span<const gpu::Order> orders, std::size_t turn) {
    Subject subject{spec_ + ", " + size, attention, {}};
    const auto forward =
        driver::lower(attention, "native", plan::Direction::forward, forms_of(turn));
    if (!forward.ok()) return;
    for (const gpu::Order order : orders)
      subject.pairs.push_back({text_of(order), *forward, {}, order, tools::Unused::anything});
    all_.push_back(std::move(subject));
  }

  // The pair of programs that a training runs.
  void add_gradients(const std::string& size, const ir::Attention& attention,
                     std::span<const gpu::Order> orders, std::size_t turn) {
    Subject subject{spec_ + ", gradients, " + size, driver::training_forward(attention), {}};
    const target::Rewrites forms = forms_of(turn);
    const auto forward =
        driver::lower(subject.attention, "native", plan::Direction::forward, forms);
    const auto backward =
        driver::lower(subject.attention, "native", plan::Direction::backward, forms);
    ASSERT_TRUE(forward.ok()) << forward.error().to_text();
    ASSERT_TRUE(backward.ok()) << backward.error().to_text();
    for (const gpu::Order order : orders)
      subject.pairs.push_back(
          {text_of(order), *forward, *backward, order, tools::Unused::anything});
    all_.push_back(std::move(subject));
  }

  const std::vector<Subject>& all() const { return all_; }

 private:
  std::string spec_;
  std::vector<Subject> all_;
};

// The gradients at every size but the scaled one, and the forward at each.
void add_all(const std::string& spec, const Sized& sizes, Subjects& subjects) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& [size, attention] = sizes[i];
    const auto orders = orders_of(spec, i);
    if (is_trained(spec) && size != "scaled") {
      subjects.add_gradients(size, attention, orders, subjects.all().size());
    }
    subjects.add_forward(size, attention, orders, subjects.all().size());
  }
}

// One size in one order: the gradients, if it is trained, else the forward. If the engine refuses
// the size of the turn, the next one.
void add_one(const std::string& spec, Sized sizes, Subjects& subjects) {
  if (is_trained(spec)) std::erase_if(sizes, [](const auto& one) { return one.first == "scaled"; });
  const std::size_t turn = turn_of(std::filesystem::path(spec).stem().string());
  for (std::size_t i = 0; i < sizes.size() && subjects.all().empty(); ++i) {
    const auto& [size, attention] = sizes[(turn + i) % sizes.size()];
    const std::size_t rest = turn / sizes.size();
    const auto orders = std::span(kOrders).subspan(rest % 2, 1);
    if (is_trained(spec))
      subjects.add_gradients(size, attention, orders, rest / 2);
    else
      subjects.add_forward(size, attention, orders, rest / 2);
  }
}

void expect_reference_of(const std::string& name, Turns turns) {
  const tools::SpecOutcome spec =
      tools::read_spec(ATTN_SOURCE_DIR "/" + name, {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  Subjects subjects(name);
  if (turns == Turns::all)
    add_all(name, sizes_of(name, *spec.spec), subjects);
  else
    add_one(name, sizes_of(name, *spec.spec), subjects);
  if (subjects.all().empty()) {
    EXPECT_TRUE(spec.spec->attention.is_mxfp8()) << "the engine refuses it";
    GTEST_SKIP() << "the engine refuses it";
  }
  expect_reference(subjects.all());
}

class HostNative : public ::testing::TestWithParam<std::string> {};
TEST_P(HostNative, IsTheReference) { expect_reference_of(GetParam(), Turns::one); }

class NightlyHostNative : public HostNative {};
TEST_P(NightlyHostNative, IsTheReference) { expect_reference_of(GetParam(), Turns::all); }

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

// Checks rows with a score that is NaN, or that see none, beside others.
void expect_nan_where_the_reference_has(const std::string& clauses) {
  SCOPED_TRACE(clauses);
  const ir::Attention attention =
      attention_of("attention f { dims B = 1, Hq = 2, Hkv = 1, D = 32, " + clauses +
                   " tensor t: f32[Sq, Skv]; score score + t[q_idx, kv_idx]; mask kv_idx != 7; }");
  const plan::Program program =
      driver::lower(attention, "native", plan::Direction::forward).value();
  reference::Inputs inputs =
      tools::make_inputs(attention, {}, tools::Missing::pattern).value().values;
  io::HostTensor& added = inputs.tensors.at("t");
  const auto columns = static_cast<std::size_t>(added.dims[1]);
  added.values[2 * columns + 7] = kNan;  // hidden
  added.values[3 * columns + columns / 2] = kNan;
  const auto outputs = outputs_of({"native", program, {}}, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
  const tools::Outputs expected = tools::run_reference(attention, inputs, {}).value();
  for (const auto& [name, reference] : expected) {
    const std::vector<double>& found = outputs->at(name).values;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(std::isnan(found[i]), std::isnan(reference.values[i])) << name << " " << i;
    }
  }
}

TEST(HostNativeSpecs, StatisticsAreNaNWhereAScoreIs) {
  expect_nan_where_the_reference_has("Sq = 70, Skv = 300; outputs o, lse, max, sum_exp;");
  expect_nan_where_the_reference_has("Sq = 5, Skv = 2048; outputs o, max, sum_exp;");  // in parts
  expect_nan_where_the_reference_has(
      "Sq = 70, Skv = 300; sink 0.5; "
      "outputs o, lse, max, max_with_sink, sum_exp_with_sink, lse_without_sink;");
  expect_nan_where_the_reference_has("Sq = 5, Skv = 2048; sink 0.5; outputs lse_without_sink;");
  expect_nan_where_the_reference_has("Sq = 70, Skv = 300; outputs o, lse;");
}

// Rows of a tensor [B, H, S, D] or [B, H, S] from the length of each batch on.
void forget_past(const std::vector<double>& lengths, io::HostTensor& tensor) {
  const auto heads = static_cast<std::size_t>(tensor.dims[1]),
             rows = static_cast<std::size_t>(tensor.dims[2]),
             row = static_cast<std::size_t>(tensor.dims.size() > 3 ? tensor.dims[3] : 1);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    if (static_cast<double>(i / row % rows) >= lengths[i / (heads * rows * row)])
      tensor.values[i] = kNan;
  }
}

// Masks that cuDNN's engine makes lengths of.
TEST(HostNativeSpecs, RowsPastPaddingMasksAreNotRead) {
  for (const char* masks :
       {"mask kv_idx < n[b] && q_idx < n[b];",
        "mask n[b] > kv_idx && q_idx + 1 <= n[b]; deterministic;",
        "mask kv_idx < n[b] && q_idx < n[b] && q_idx >= kv_idx; score 9 * tanh(score / 9);",
        "mask kv_idx < n[b] && q_idx < n[b]; grad q, k, v, lse;"}) {
    SCOPED_TRACE(masks);
    const ir::Attention attention = attention_of(
        "attention f { dims B = 4, Hq = 2, Hkv = 1, Sq = 200, Skv = 200, D = 32; outputs o, lse;"
        "tensor n: i32[B] = 61 * i0 - 3; " +
        std::string(masks) + " }");
    const Pair pair{"native", driver::lower(attention, "native", plan::Direction::forward).value(),
                    driver::lower(attention, "native", plan::Direction::backward).value()};
    reference::Inputs inputs =
        tools::make_inputs(attention, {}, tools::Missing::pattern, tools::Needs::gradients)
            .value()
            .values;
    reference::Options options;
    options.sizes = true;
    const tools::ReferenceGradients reference =
        tools::run_reference_gradients(attention, inputs, true, options).value();
    const std::vector<double> lengths = inputs.tensors.at("n").values;
    for (const char* name : {"q", "k", "v", "do"}) forget_past(lengths, inputs.tensors.at(name));
    if (attention.reads_d_lse) forget_past(lengths, inputs.tensors.at("dlse"));
    const auto outputs = outputs_of(pair, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
    for (const tools::Comparison& each :
         tools::compare(*outputs, reference.outputs, tools::Types(attention), reference.sizes)) {
      EXPECT_TRUE(each.agrees()) << each.name << ": " << each.why;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::string>& file) {
  return std::filesystem::path(file.param).stem().string();
}
INSTANTIATE_TEST_SUITE_P(Specs, HostNative, ::testing::ValuesIn(specs_of("specs")), name_of);
INSTANTIATE_TEST_SUITE_P(Native, HostNative, ::testing::ValuesIn(specs_of("tests/gpu/native")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Specs, NightlyHostNative, ::testing::ValuesIn(specs_of("specs")), name_of);
INSTANTIATE_TEST_SUITE_P(Native, NightlyHostNative,
                         ::testing::ValuesIn(specs_of("tests/gpu/native")), name_of);

}  // namespace
}  // namespace attn::host::native_tests
