// Tests schedules and checks of bindings by attn.hpp on the stand-ins. Includes no internal
// headers: see plan_file.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attn.hpp>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/standin/standins.h"
#include "tests/unit/runtime/api/must.h"
#include "tests/unit/runtime/api/plan_file.h"

namespace {

using attn::standin::must;
using ::testing::HasSubstr;

static_assert(std::is_nothrow_move_constructible_v<attn::Schedule>);
static_assert(!std::is_copy_constructible_v<attn::Schedule>);

class AttnSchedule : public attn::standin::StandinTest {
 protected:
  void SetUp() override {
    StandinTest::SetUp();
    attn::RuntimeOptions options;
    options.cudnn_folder = attn::standin::folder();
    runtime_ = must(attn::Runtime::open(options));
    executable_ =
        must(attn::Executable::load_memory(runtime_, attn::standin::contents_of_scheduled()));
  }
  void TearDown() override {
    executable_ = {};
    memory_.clear();
    runtime_ = {};
    StandinTest::TearDown();
  }

  // Device memory for all tensors of a layer. The stand-in's memory is the host's.
  attn::Binding layer(char fill) {
    attn::Arguments arguments;
    for (const attn::TensorInfo& tensor : executable_.tensors()) {
      memory_.push_back(must(attn::Memory::allocate(runtime_, 4096)));
      std::memset(memory_.back().data(), fill, 4096);
      arguments.tensor(tensor.name,
                       {memory_.back().data(), tensor.dtype, tensor.dims, tensor.strides});
    }
    set_lengths(5, 2);
    return must(executable_.bind(arguments.param("cap", 2.0F).param("window", 3)));
  }
  // Sets those of the layer that was made last.
  void set_lengths(std::int32_t first, std::int32_t second) {
    const std::int32_t lengths[] = {first, second};
    std::memcpy(memory_.back().data(), lengths, sizeof lengths);
  }
  // The output of the layer that was made last.
  std::string read_o() {
    const attn::Memory& o = memory_[memory_.size() - 3];
    std::string bytes(2 * 4 * 3 * 8 * 2, '\0');
    must(o.download(bytes.data(), bytes.size()));
    return bytes;
  }
  static std::int64_t launches() {
    return attn::standin::cuda().control.calls("cuLaunchKernelEx", STANDIN_ANY);
  }
  template <typename Result>
  static void expect_error(const Result& result, attn::Code code, const char* text) {
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, code);
    EXPECT_THAT(result.error().message, HasSubstr(text));
  }

  attn::Runtime runtime_;
  attn::Executable executable_;
  std::vector<attn::Memory> memory_;
};

TEST_F(AttnSchedule, IsMadeOnceForLayers) {
  {
    attn::Binding first = layer('a'), second = layer('b');
    must(second.execute(nullptr));
    const std::string own = read_o();
    attn::Schedule schedule = must(attn::Schedule::create(executable_));
    must(first.use_schedule(schedule));
    must(second.use_schedule(schedule));
    const std::int64_t before = launches();
    must(schedule.build(first, attn::Sequences::all(), nullptr));
    must(first.execute(nullptr));
    must(second.execute(nullptr));
    EXPECT_EQ(launches(), before + 3);
    const std::string all = read_o();
    EXPECT_NE(all, own) << "which has no slots among its options, and here all options matter";
    must(schedule.build(first, attn::Sequences::of(1), nullptr));
    must(second.execute(nullptr));
    EXPECT_NE(read_o(), all);
    must(schedule.build(first, attn::Sequences::of(-1), nullptr));
    must(second.execute(nullptr));
    EXPECT_EQ(read_o(), all);
    const auto* number = static_cast<const std::int32_t*>(memory_.back().data());
    must(schedule.build(first, attn::Sequences::at(number), nullptr));
    must(second.execute(nullptr));
    EXPECT_NE(read_o(), all);
    const std::string at = read_o();
    must(schedule.build(first, attn::Sequences::at(number).sharing_beside(), nullptr));
    must(second.execute(nullptr));
    EXPECT_NE(read_o(), at);
    must(schedule.build(first, attn::Sequences::all().sharing(2), nullptr));
    must(second.execute(nullptr));
    EXPECT_NE(read_o(), all);
    (void)must(schedule.flags(nullptr));
    must(second.use_schedule({}));
    must(second.execute(nullptr));
    EXPECT_EQ(read_o(), own);
  }
}

// Without memory for what the schedule has.
TEST_F(AttnSchedule, MayBeUsedFromTheBeginning) {
  {
    attn::Schedule schedule = must(attn::Schedule::create(executable_));
    attn::Arguments arguments;
    attn::Binding other = layer('a');
    const auto bytes = [] { return attn::standin::live().bytes; };
    std::int64_t before = bytes();
    for (std::size_t i = 0; i < executable_.tensors().size(); ++i) {
      const attn::TensorInfo& tensor = executable_.tensors()[i];
      arguments.tensor(tensor.name, {memory_[i].data(), tensor.dtype, tensor.dims, tensor.strides});
    }
    arguments.param("cap", 2.0F).param("window", 3);
    attn::Binding binding = must(executable_.bind(arguments, schedule));
    EXPECT_LT(bytes() - before, executable_.workspace_bytes());
    expect_error(binding.execute(nullptr), attn::Code::binding, "was not built yet");
    must(schedule.build(binding, attn::Sequences::all(), nullptr));
    must(binding.execute(nullptr));
    before = bytes();
    must(binding.use_schedule({}));
    EXPECT_GE(bytes() - before, executable_.workspace_bytes());
    must(binding.execute(nullptr));
  }
}

TEST_F(AttnSchedule, StridesOfThePlanAreNotGivenLater) {
  {
    attn::Binding binding = layer('a');
    std::vector<void*> addresses;
    for (const attn::Memory& each : memory_) addresses.push_back(each.data());
    std::vector<const std::int64_t*> strides(addresses.size());
    must(binding.set_views(addresses, strides));
    const std::vector<std::int64_t> some(4, 1);
    strides[0] = some.data();
    expect_error(binding.set_views(addresses, strides), attn::Code::binding,
                 "has the strides of the plan, which does not bind them");
    strides.pop_back();
    expect_error(binding.set_views(addresses, strides), attn::Code::binding, "as many strides");
    attn::Binding nothing;
    strides.push_back(nullptr);
    expect_error(nothing.set_views(addresses, strides), attn::Code::invalid_argument,
                 "the binding must not be NULL");
  }
}

TEST_F(AttnSchedule, OptionsAreReadByTheirSize) {
  attn::ScheduleOptions options;
  options.max_parts = 2;
  options.sm_margin = 4;
  options.split_keys = 2;
  options.capacity_keys = 10;
  EXPECT_TRUE(attn::Schedule::create(executable_, options).ok());
  options.size = 2 * sizeof(std::size_t);  // max_parts alone
  EXPECT_TRUE(attn::Schedule::create(executable_, options).ok());
  options.size = 0;
  expect_error(attn::Schedule::create(executable_, options), attn::Code::invalid_argument,
               "sizeof");
  options = {};
  options.split_keys = 2;
  expect_error(attn::Schedule::create(executable_, options), attn::Code::invalid_argument,
               "split_keys is given without capacity_keys");
}

TEST_F(AttnSchedule, WhatIsWrongIsSaid) {
  {
    attn::Binding binding = layer('a');
    attn::Schedule schedule = must(attn::Schedule::create(executable_));
    expect_error(schedule.build(binding, attn::Sequences::of(3), nullptr),
                 attn::Code::invalid_argument, "the number of sequences is 3");
    expect_error(schedule.build(binding, attn::Sequences::of(1).sharing(-3), nullptr),
                 attn::Code::invalid_argument, "the number of shared keys is -3");
    attn::Binding nothing;
    expect_error(schedule.build(nothing, attn::Sequences::all(), nullptr),
                 attn::Code::invalid_argument, "the binding must not be NULL");
    expect_error(nothing.use_schedule(schedule), attn::Code::invalid_argument, "the binding");
    expect_error(nothing.check(nullptr), attn::Code::invalid_argument, "the binding");
    attn::Schedule empty;
    EXPECT_FALSE(empty);
    expect_error(empty.build(binding, attn::Sequences::all(), nullptr),
                 attn::Code::invalid_argument, "the schedule must not be NULL");
    expect_error(empty.flags(nullptr), attn::Code::invalid_argument, "the schedule");
    expect_error(attn::Schedule::create({}), attn::Code::invalid_argument, "the executable");
    const auto other =
        must(attn::Executable::load_memory(runtime_, attn::standin::contents_of({})));
    expect_error(attn::Schedule::create(other), attn::Code::unsupported,
                 "the executable takes no schedule");
    must(binding.use_schedule(schedule));
    expect_error(binding.execute(nullptr), attn::Code::binding, "was not built yet");
  }
}

TEST_F(AttnSchedule, ABindingIsChecked) {
  {
    attn::Binding binding = layer('a');
    must(binding.check(nullptr));
    set_lengths(5, 6);
    expect_error(binding.check(nullptr), attn::Code::binding,
                 "tensor 'lengths_kv' has 6 at 1, but a sequence has 0 to 5 keys");
  }
}

}  // namespace
