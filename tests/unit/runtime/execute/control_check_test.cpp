// Tests Binding::check: what lengths, cu_seqlens and page tables may not hold. Its kernel runs as
// it is on the stand-ins.
#include <cuda.h>

#include "runtime/cuda/graph.h"
#include "runtime/execute/schedule.h"
#include "tests/unit/runtime/execute/on_standins.h"
#include "tests/unit/runtime/plan/sample_plans.h"

namespace attn::execute {
namespace {

using ::testing::HasSubstr;

// The sample with lengths of rows, too, packed rows, and keys and values in pages: 3 rows and 8
// keys of 2 sequences, in pages of 4.
plan::Program paged_program() {
  plan::Program program = plan::testing::bound_program();
  program.tensors[0].dims[2] = program.tensors[5].dims[2] = 3;
  for (const char* name : {"lengths_q", "lengths_kv"}) {
    program.tensors.push_back({name, plan::TensorRole::captured, DType::i32, {2}, {1}, 4});
  }
  return program;
}

class ControlChecks : public WithCase {
 protected:
  enum : std::size_t { kK = 1, kRows = 3, kTable = 4, kLengthsQ = 6, kLengthsKv = 7 };

  void SetUp() override {
    OnStandins::SetUp();
    use(paged_program(), 8);
  }
  void use(const plan::Program& program, std::int64_t keys) {
    plan::Plan plan = standin::plan_of(program);
    plan.shape.sizes[plan::Dim::Sq] = 3;
    plan.shape.sizes[plan::Dim::Skv] = keys;
    load(plan);
  }

  // The stand-in's memory is the host's.
  std::int32_t* at(std::size_t tensor) const {
    return static_cast<std::int32_t*>(on_->addresses()[tensor]);
  }
  void set(std::size_t tensor, std::vector<std::int32_t> values) const {
    std::ranges::copy(values, at(tensor));
  }
  void set_right() const {
    set(kRows, {0, 3, 5});
    set(kLengthsQ, {3, 0});
    set(kLengthsKv, {8, 3});
    set(kTable, {0, 3, 2, -7});  // the last is not in use
  }
  static std::string found(const Binding& binding, void* stream = nullptr) {
    const Status status = binding.check(stream);
    if (status.ok()) return "nothing";
    EXPECT_EQ(status.error().code, ErrorCode::binding);
    return status.error().message;
  }
};

TEST_F(ControlChecks, NameTheTensorAndThePlace) {
  const Binding binding = must(executable_->bind(on_->arguments()));
  set_right();
  EXPECT_EQ(found(binding), "nothing");
  const struct {
    std::size_t tensor;
    std::vector<std::int32_t> values;
    const char* what;
  } wrong[] = {
      {kLengthsQ, {0, 4}, "tensor 'lengths_q' has 4 at 1, but a sequence has 0 to 3 rows"},
      {kLengthsKv, {-1, 9}, "tensor 'lengths_kv' has -1 at 0, but a sequence has 0 to 8 keys"},
      {kLengthsKv, {0, 9}, "tensor 'lengths_kv' has 9 at 1, but a sequence has 0 to 8 keys"},
      {kRows,
       {0, 3, 7},
       "tensor 'cu_seqlens_q' goes from 3 to 7 at 1, but a sequence has at most 3 rows"},
      {kRows,
       {0, 3, 2},
       "tensor 'cu_seqlens_q' goes from 3 to 2 at 1, but it must be 0 or more and never fall"},
      {kRows,
       {-2, 0, 2},
       "tensor 'cu_seqlens_q' goes from -2 to 0 at 0, but it must be 0 or more and never fall"},
      {kTable, {0, 4, 9, 9}, "tensor 'page_table' has page 4 at [0, 1], but 'k' has 4 pages"},
      {kTable, {0, 1, -1, 9}, "tensor 'page_table' has page -1 at [1, 0], but 'k' has 4 pages"},
  };
  for (const auto& [tensor, values, what] : wrong) {
    set_right();
    set(tensor, values);
    EXPECT_EQ(found(binding), what);
  }
}

// Pages are those of the bound pool, and rows of the table where its strides are.
TEST_F(ControlChecks, LookAtWhatIsBound) {
  set_right();
  Arguments arguments = on_->arguments();
  arguments.tensor("k", {at(kK), DType::f16, {3, 2, 4, 8}, {64, 32, 8, 1}});
  const auto wide = must(cuda::DeviceBuffer::allocate(executable_->device(), 4 * 8));
  const std::int32_t rows[] = {0, 1, 77, 77, 77, 2, 0, 77};
  std::ranges::copy(rows, static_cast<std::int32_t*>(wide.data()));
  arguments.tensor("page_table", {wide.data(), DType::i32, {2, 2}, {5, 1}});
  const Binding binding = must(executable_->bind(arguments));
  EXPECT_EQ(found(binding), "nothing");
  static_cast<std::int32_t*>(wide.data())[5] = 3;
  EXPECT_EQ(found(binding), "tensor 'page_table' has page 3 at [1, 0], but 'k' has 3 pages");
  set(kLengthsKv, {8, 0});
  EXPECT_EQ(found(binding), "nothing");
}

TEST_F(ControlChecks, WithoutLengthsAllKeysAreUsed) {
  plan::Program program = paged_program();
  program.tensors.resize(kLengthsQ);
  use(program, 5);  // in the second page of a sequence
  set(kRows, {0, 0, 0});
  set(kTable, {0, 1, 2, 3});
  const Binding binding = must(executable_->bind(on_->arguments()));
  EXPECT_EQ(found(binding), "nothing");
  set(kTable, {0, 1, 2, 4});
  EXPECT_EQ(found(binding), "tensor 'page_table' has page 4 at [1, 1], but 'k' has 4 pages");
}

// What is behind the sequences that a schedule is for may be anything.
TEST_F(ControlChecks, EndWhereTheScheduleDoes) {
  use(plan::testing::scheduled_program(), 5);
  Schedule schedule = must(Schedule::make(*executable_));
  Binding binding = must(executable_->bind(on_->arguments()));
  EXPECT_OK(binding.use_schedule(&schedule));
  constexpr std::size_t kLengths = 5;
  set(kLengths, {5, 6});
  const char* what = "tensor 'lengths_kv' has 6 at 1, but a sequence has 0 to 5 keys";
  EXPECT_EQ(found(binding), what);
  EXPECT_OK(schedule.build(binding, {nullptr, 1}, nullptr));
  EXPECT_EQ(found(binding), "nothing");
  const auto count = must(cuda::DeviceBuffer::allocate(executable_->device(), sizeof(int)));
  for (const std::int32_t number : {1, 2, 3, -1}) {
    *static_cast<std::int32_t*>(count.data()) = number;
    EXPECT_OK(schedule.build(binding, {static_cast<const std::int32_t*>(count.data())}, nullptr));
    EXPECT_EQ(found(binding), number == 2 || number == 3 ? what : "nothing") << number;
  }
  EXPECT_OK(schedule.build(binding, {}, nullptr));
  EXPECT_EQ(found(binding), what);
}

TEST_F(ControlChecks, AreNotCaptured) {
  const Binding binding = must(executable_->bind(on_->arguments()));
  const auto graph = cuda::Graph::capture(executable_->device(),
                                          [&](void* stream) { return binding.check(stream); });
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.error().message, HasSubstr("cannot be checked while its stream is captured"));
}

TEST_F(ControlChecks, NothingIsLaunchedWhereNothingControls) {
  load(standin::plan_of(plan::testing::kernel_program()));
  const Binding binding = must(executable_->bind(on_->arguments()));
  const std::int64_t before = cuda_calls("cuLaunchKernelEx");
  EXPECT_EQ(found(binding), "nothing");
  EXPECT_EQ(cuda_calls("cuLaunchKernelEx"), before);
}

}  // namespace
}  // namespace attn::execute
