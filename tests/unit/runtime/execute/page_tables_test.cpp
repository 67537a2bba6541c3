// Tests pools and page tables as inference engines have them: another number of pages, and rows
// further apart than the plan's.
#include <array>

#include "runtime/execute/checks.h"
#include "runtime/plan/internal_tensor.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using standin::Case;
using ::testing::HasSubstr;

class PageTables : public WithCase {
 protected:
  static constexpr std::size_t kTable = 5;  // index of the table
  static constexpr std::int64_t kRows = 2, kColumns = 2, kStride = 5;
  static constexpr std::size_t kRowBytes = kColumns * sizeof(std::int32_t);

  void SetUp() override {
    OnStandins::SetUp();
    load(standin::plan_of(plan::testing::controlled_program()));
  }

  // The table of a case, with a gap after each row.
  cuda::DeviceBuffer wide_table_of(const Case& on) const {
    const std::size_t pitch = kStride * sizeof(std::int32_t);
    auto wide = must(cuda::DeviceBuffer::allocate(runtime_->device(), kRows * pitch));
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<std::byte> bytes(kRowBytes);
      const auto* from = static_cast<const std::byte*>(on.addresses()[kTable]) + row * kRowBytes;
      std::copy_n(from, kRowBytes, bytes.begin());  // the stand-in's memory is the host's
      EXPECT_OK(wide.upload(bytes, row * pitch));
    }
    return wide;
  }
  Arguments with(const std::string& name, const TensorView& view) const {
    Arguments arguments = on_->arguments();
    return arguments.tensor(name, view);
  }
  std::string refusal(const Arguments& arguments) const {
    const auto bound = executable_->bind(arguments);
    return bound.ok() ? "accepted" : bound.error().message;
  }
};

TEST_F(PageTables, RowsMayLieFurtherApart) {
  const cuda::DeviceBuffer wide = wide_table_of(*on_);
  const Arguments arguments =
      with("page_table", {wide.data(), DType::i32, {kRows, kColumns}, {kStride, 1}});
  Binding binding = must(executable_->bind(arguments));
  expect_right(*on_, binding);

  Case other = must(Case::make(executable_->device(), plan_, 2));
  const cuda::DeviceBuffer other_wide = wide_table_of(other);
  std::vector<void*> addresses = other.addresses();
  addresses[kTable] = other_wide.data();
  EXPECT_OK(binding.set_addresses(addresses));
  expect_right(other, binding);

  CudaGraph graph = must(CudaGraph::capture(std::move(binding)));
  EXPECT_OK(other.poison());
  EXPECT_OK(graph.launch(nullptr));
  EXPECT_TRUE(must(other.is_right()));
}

TEST_F(PageTables, ATableAsThePlanHasItIsNotCopied) {
  Binding binding = must(executable_->bind(on_->arguments()));
  expect_right(*on_, binding);
  EXPECT_EQ(cuda_calls("cuMemcpy2DAsync"), 0);
}

TEST_F(PageTables, RowsThatOverlapAndColumnsApartAreRefused) {
  void* table = on_->addresses()[kTable];
  EXPECT_EQ(refusal(with("page_table", {table, DType::i32, {2, 2}, {1, 1}})),
            "tensor 'page_table' has strides [1, 1] but the plan needs [2, 1]");
  EXPECT_EQ(refusal(with("page_table", {table, DType::i32, {2, 2}, {5, 2}})),
            "tensor 'page_table' has strides [5, 2] but the plan needs [2, 1]");
  EXPECT_THAT(refusal(with("cu_seqlens_q", {table, DType::i32, {3}, {2}})), HasSubstr("strides"));
}

TEST_F(PageTables, APoolMayHaveFewerPagesAndNotMore) {
  void* pool = on_->addresses()[1];
  const auto pages = [&](std::int64_t count) {
    return refusal(with("k", {pool, DType::f16, {count, 2, 4, 8}, {64, 32, 8, 1}}));
  };
  EXPECT_EQ(pages(1), "accepted");
  EXPECT_EQ(pages(4), "accepted");
  EXPECT_EQ(pages(9),
            "tensor 'k' has 9 pages but the plan reads at most 4; its layout needs `pages = 9`");
  EXPECT_EQ(pages(0), "tensor 'k' has dims [0, 2, 4, 8] but the plan needs [4, 2, 4, 8]");
  EXPECT_THAT(refusal(with("v", {on_->addresses()[2], DType::f16, {1, 2, 5, 8}, {80, 40, 8, 1}})),
              HasSubstr("has dims"));
}

TEST_F(PageTables, APoolThatIsCopiedHasThePlansPages) {
  plan::Program program = plan::testing::controlled_program();
  std::get<plan::DeriveStep>(program.steps[0]).inputs.emplace_back(plan::TensorOperand{"k"});
  const Executable copying = must(Executable::load(runtime_, standin::plan_of(program)));
  const auto bound =
      copying.bind(with("k", {on_->addresses()[1], DType::f16, {3, 2, 4, 8}, {64, 32, 8, 1}}));
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().message, "tensor 'k' has 3 pages but the plan copies all of its 4");
}

// Tensors whose strides are bound.
class BoundStrides : public PageTables {
 protected:
  static constexpr std::size_t kQ = 0, kK = 1, kV = 2, kBoundTable = 4,
                               kO = 5;  // indexes of tensors

  void SetUp() override {
    OnStandins::SetUp();
    load(standin::plan_of(plan::testing::bound_program()));
  }

  // Binds a tensor with those dims and strides; kernels see the strides, and the rest as before.
  void expect_seen(std::size_t tensor, std::vector<std::int64_t> dims,
                   std::vector<std::int64_t> strides) const {
    plan::Plan other = plan_;
    other.program.tensors[tensor].dims = std::move(dims);
    other.program.tensors[tensor].strides = std::move(strides);
    Case there = must(Case::make(executable_->device(), other, 3));
    Binding binding = must(executable_->bind(there.arguments()));
    expect_right(there, binding);
    EXPECT_EQ(cuda_calls("cuMemcpy2DAsync"), 0);
  }
  std::string given(const std::string& name, const std::vector<std::int64_t>& dims,
                    const std::vector<std::int64_t>& strides) const {
    void* const data = on_->addresses()[name == "q" ? kQ : name == "k" ? kK : kO];
    return refusal(with(name, {data, DType::f16, dims, strides}));
  }
};

TEST_F(BoundStrides, ReachTheKernels) {
  expect_seen(kQ, {2, 2, 1, 8}, {16, 8, 640, 1});
  expect_seen(kV, {9, 2, 4, 8}, {128, 8, 16, 1});
  expect_seen(kBoundTable, {2, 2}, {7, 1});
  expect_seen(kO, {2, 2, 1, 8}, {8, 16, 32, 1});
}

TEST_F(BoundStrides, ArePlannedOnesOfAnAddress) {
  Arguments arguments;
  for (std::size_t i = 0; i < plan_.program.tensors.size(); ++i) {
    arguments.address(plan_.program.tensors[i].name, on_->addresses()[i]);
  }
  Binding binding = must(executable_->bind(arguments));
  expect_right(*on_, binding);
}

// Strides of a table that no map has, and of tensors that have maps.
TEST_F(BoundStrides, MayBeOthersLater) {
  Binding binding = must(executable_->bind(on_->arguments()));
  expect_right(*on_, binding);
  const auto encoded = [] { return cuda_calls("cuTensorMapEncodeTiled"); };
  const auto expect_view = [&](std::size_t tensor, const std::vector<std::int64_t>& strides) {
    plan::Plan other = plan_;
    other.program.tensors[tensor].strides = strides;
    Case there = must(Case::make(executable_->device(), other, 3));
    std::vector<const std::int64_t*> all(plan_.program.tensors.size());
    for (std::size_t i : {kQ, kK, kV, kBoundTable, kO})
      all[i] = other.program.tensors[i].strides.data();
    EXPECT_OK(binding.set_views(there.addresses(), all));
    expect_right(there, binding);
    EXPECT_OK(binding.set_addresses(on_->addresses()));  // which keeps the strides
    EXPECT_OK(binding.set_views(there.addresses(), all));
    expect_right(there, binding);
  };
  expect_view(kBoundTable, {7, 1});
  const std::int64_t before = encoded();

  EXPECT_OK(binding.set_addresses(on_->addresses()));
  const std::int64_t moved = encoded() - before;
  std::vector<const std::int64_t*> table(plan_.program.tensors.size());
  const std::array<std::int64_t, 2> wide = {9, 1};
  table[kBoundTable] = wide.data();
  EXPECT_OK(binding.set_views(on_->addresses(), table, Check::no));
  EXPECT_EQ(encoded() - before, moved) << "a table has no map";
  expect_view(kQ, {16, 8, 640, 1});
  expect_view(kV, {128, 8, 16, 1});
  expect_view(kO, {8, 16, 32, 1});
  expect_view(kK, {64, 8, 16, 1});
}

TEST_F(BoundStrides, ThatAreRefusedLaterChangeNothing) {
  Binding binding = must(executable_->bind(on_->arguments()));
  std::vector<const std::int64_t*> all(plan_.program.tensors.size());
  const auto refused = [&](std::size_t tensor, const std::vector<std::int64_t>& strides,
                           std::vector<void*> addresses) {
    all.assign(all.size(), nullptr);
    all[tensor] = strides.data();
    const Status set = binding.set_views(addresses, all);
    expect_right(*on_, binding);
    return set.ok() ? "accepted" : set.error().message;
  };
  EXPECT_THAT(refused(kQ, {16, 8, 5, 1}, on_->addresses()), HasSubstr("adjacent elements"));
  EXPECT_THAT(refused(kBoundTable, {1, 1}, on_->addresses()), HasSubstr("has strides [1, 1]"));
  EXPECT_EQ(refused(3, {2}, on_->addresses()),
            "tensor 'cu_seqlens_q' has the strides of the plan, which does not bind them");
  std::vector<void*> addresses = on_->addresses();
  addresses[kV] = nullptr;
  EXPECT_THAT(refused(kQ, {16, 8, 640, 1}, addresses), HasSubstr("null address"));
  Case other = must(Case::make(executable_->device(), plan_, 2));
  script_cuda(standin::fail_nth("cuTensorMapEncodeTiled", 1, 1));
  EXPECT_FALSE(refused(kK, {64, 8, 16, 1}, other.addresses()) == "accepted");
  all.pop_back();
  EXPECT_EQ(binding.set_views(on_->addresses(), all).error().code, ErrorCode::binding);
}

TEST_F(BoundStrides, AreOfAlignedRows) {
  EXPECT_EQ(given("k", {4, 2, 4, 8}, {64, 8, 16, 1}), "accepted");
  EXPECT_EQ(given("k", {400, 2, 4, 8}, {96, 8, 24, 1}), "accepted");
  EXPECT_EQ(
      given("k", {4, 2, 4, 8}, {64, 8, 20, 1}),
      "tensor 'k' has strides [64, 8, 20, 1] but the plan needs adjacent elements in each "
      "row, and other strides that are multiples of 8 elements (16 bytes), above 0, all within "
      "512 GiB");
  for (const std::vector<std::int64_t>& strides :
       std::vector<std::vector<std::int64_t>>{{64, 8, 16, 2},
                                              {64, 8, 0, 1},
                                              {64, 0, 16, 1},
                                              {-64, 8, 16, 1},
                                              {std::int64_t{1} << 37, 8, 16, 1},
                                              {std::int64_t{1} << 62, 8, 16, 1}}) {
    EXPECT_THAT(given("k", {4, 2, 4, 8}, strides), HasSubstr("adjacent elements")) << strides[0];
  }
  EXPECT_EQ(given("k", {4, 2, 4, 8}, {64, 8, 16}),
            "tensor 'k' has strides [64, 8, 16] but the plan needs [64, 32, 8, 1]");
  EXPECT_THAT(given("k", {4, 2, 5, 8}, {80, 8, 16, 1}), HasSubstr("has dims"));
  EXPECT_THAT(given("k", {0, 2, 4, 8}, {64, 8, 16, 1}), HasSubstr("has dims"));
  EXPECT_EQ(given("k", {1 << 27, 2, 4, 8}, {136, 64, 16, 1}), "accepted") << "no map has steps";
  void* const odd = static_cast<std::byte*>(on_->addresses()[kK]) + 8;
  EXPECT_THAT(refusal(with("k", {odd, DType::f16, {4, 2, 4, 8}, {64, 8, 16, 1}})),
              HasSubstr("which is not a multiple of 16 bytes"));
}

// A map whose last dimension has pages and heads in steps.
class SteppedStrides : public BoundStrides {
 protected:
  void SetUp() override {
    OnStandins::SetUp();
    load(standin::plan_of(plan::testing::stepped_program()));
  }
};

TEST_F(SteppedStrides, ReachTheKernels) {
  expect_seen(kK, {4, 2, 4, 8}, {64, 32, 8, 1});
  expect_seen(kK, {4, 2, 4, 8}, {72, 32, 8, 1});
}

TEST_F(SteppedStrides, MayBeOthersLater) {
  Binding binding = must(executable_->bind(on_->arguments()));
  for (const std::int64_t page : {72, 64, 128}) {
    plan::Plan other = plan_;
    other.program.tensors[kK].strides[0] = page;
    Case there = must(Case::make(executable_->device(), other, 3));
    std::vector<const std::int64_t*> all(plan_.program.tensors.size());
    all[kK] = other.program.tensors[kK].strides.data();
    EXPECT_OK(binding.set_views(there.addresses(), all));
    expect_right(there, binding);
  }
}

TEST_F(SteppedStrides, AreAsManyAsCoordinatesCanSay) {
  constexpr std::int64_t kPages = 1 << 27;
  EXPECT_EQ(given("k", {kPages, 2, 4, 8}, {128, 64, 16, 1}), "accepted");
  EXPECT_EQ(
      given("k", {kPages, 2, 4, 8}, {136, 64, 16, 1}),
      "tensor 'k' has pages and heads at multiples of 8 elements, of which at most 2147483647 "
      "can be addressed; strides with a larger common divisor reach further");
}

// Packed rows have no batch stride, and rows follow each other though a sequence has one.
TEST_F(BoundStrides, ThatMeanNothingMayBeAny) {
  EXPECT_EQ(given("k", {1, 2, 4, 8}, {3, 8, 16, 1}), "accepted");
  EXPECT_EQ(given("q", {2, 2, 1, 8}, {-5, 8, 640, 1}), "accepted");
  EXPECT_THAT(given("q", {2, 2, 1, 8}, {16, 8, 5, 1}), HasSubstr("adjacent elements"));
}

TEST_F(BoundStrides, OfAnOutputDoNotOverlap) {
  EXPECT_EQ(given("o", {2, 2, 1, 8}, {16, 8, 32, 1}), "accepted");
  EXPECT_EQ(given("q", {2, 2, 1, 8}, {16, 8, 8, 1}), "accepted");
  EXPECT_EQ(given("o", {2, 2, 1, 8}, {16, 8, 8, 1}),
            "tensor 'o' is written but has strides [16, 8, 8, 1], with which elements overlap");
}

// Though a sequence has one row at most, its row is one of many.
TEST_F(BoundStrides, ThatAreNotBoundAreThePlansInPackedRowsToo) {
  plan::Program program = plan_.program;
  for (plan::TensorInfo& tensor : program.tensors) tensor.bound_strides = false;
  const auto rows = [&](const std::vector<std::int64_t>& strides) {
    const Arguments given = with("q", {on_->addresses()[kQ], DType::f16, {2, 2, 1, 8}, strides});
    const Status status = check_arguments(program, given, 0, [](const void*) {
      return Result<cuda::PointerInfo>(cuda::PointerInfo{cuda::MemoryKind::managed, 0, 0});
    });
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(rows({16, 8, 16, 1}), "accepted");
  EXPECT_EQ(rows({5, 8, 16, 1}), "accepted");
  EXPECT_EQ(rows({16, 8, 24, 1}),
            "tensor 'q' has strides [16, 8, 24, 1] but the plan needs [16, 8, 16, 1]");
}

// As many as it lists, in pages that the map has.
TEST_F(PageTables, APoolThatAKernelMapsMayHaveFewerPagesAndNotMore) {
  plan::Program program = plan::testing::controlled_program();
  program.internals.push_back(plan::internal_tensor("sum", DType::f32, {1}));
  const plan::TensorMapArgument map{.tensor = {"k"},
                                    .dims = {8, 4, 2, 3},
                                    .strides = {8, 32, 64},
                                    .box = {8, 4, 1, 1},
                                    .swizzle = 0};
  plan::KernelStep step;
  step.outputs = {"sum"};
  step.source = "//";
  step.launches = {{.kernel = "mapping", .arguments = {map, plan::TensorOperand{"sum"}}}};
  program.steps.emplace_back(std::move(step));
  const auto pages = [&](std::int64_t count) {
    const Arguments given =
        with("k", {on_->addresses()[1], DType::f16, {count, 2, 4, 8}, {64, 32, 8, 1}});
    const Status status = check_arguments(program, given, 0, [](const void*) {
      return Result<cuda::PointerInfo>(cuda::PointerInfo{cuda::MemoryKind::managed, 0, 0});
    });
    return status.ok() ? "accepted" : status.error().message;
  };
  EXPECT_EQ(pages(2), "accepted");
  EXPECT_EQ(pages(9),
            "tensor 'k' has 9 pages but the plan reads at most 3; its layout needs `pages = 9`");
}

}  // namespace
}  // namespace attn::execute
