#include "runtime/execute/scalars.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "runtime/execute/addresses.h"
#include "tests/gpu/plain_attention.h"

namespace attn::execute {
namespace {

template <typename T>
T read(const void* place) {
  T value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

bool is_aligned(const void* place) { return reinterpret_cast<std::uintptr_t>(place) % 16 == 0; }

plan::Program program() {
  plan::Program program = testing::attention_program({}, testing::Mask::causal);
  program.params.push_back({"window", DType::i32});
  return program;
}

TEST(Scalars, ValuesLieInAlignedPlacesOfTheirOwn) {
  Scalars scalars(program(), Arguments().scalar("scale", 0.125).scalar("window", -7));
  EXPECT_EQ(read<float>(scalars.param("scale")), 0.125F);
  EXPECT_EQ(read<std::int32_t>(scalars.param("window")), -7);
  EXPECT_TRUE(is_aligned(scalars.param("scale")));
  EXPECT_TRUE(is_aligned(scalars.param("window")));
  EXPECT_NE(scalars.param("scale"), scalars.param("window"));
  EXPECT_EQ(scalars.param("cap"), nullptr);
}

TEST(Scalars, InfinitiesAreKept) {
  Scalars scalars(program(), Arguments());
  void* place = scalars.constant({DType::f32, -std::numeric_limits<double>::infinity()});
  EXPECT_EQ(read<float>(place), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(is_aligned(place));
}

TEST(Scalars, PlacesSurviveAMove) {
  Scalars scalars(program(), Arguments().scalar("scale", 2.0));
  void* place = scalars.param("scale");
  const Scalars moved = std::move(scalars);
  EXPECT_EQ(moved.param("scale"), place);
  EXPECT_EQ(read<float>(place), 2.0F);
}

TEST(Scalars, AParamIsChangedInPlace) {
  Scalars scalars(program(), Arguments().scalar("scale", 2.0));
  void* place = scalars.param("scale");
  scalars.set_param("scale", DType::f32, 0.5);
  EXPECT_EQ(scalars.param("scale"), place);
  EXPECT_EQ(read<float>(place), 0.5F);
}

TEST(Addresses, EveryOperandHasOneInOrder) {
  const plan::Program causal = testing::attention_program({}, testing::Mask::causal);
  const auto& step = std::get<plan::CudnnStep>(causal.steps[0]);
  Arguments arguments;
  std::uintptr_t address = 0x1000;
  for (const plan::TensorInfo& info : causal.tensors) {
    arguments.tensor(info.name, {reinterpret_cast<void*>(address += 16), info.dtype, {}, {}});
  }
  arguments.scalar("scale", 0.5);
  Scalars scalars(causal, arguments);
  const CudnnOperands operands(step, Memory(causal, scalars));
  ASSERT_EQ(operands.uids.size(), step.operands.size());
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    EXPECT_EQ(operands.uids[i], step.operands[i].uid);
  }
  const std::vector<void*> addresses = operands.addresses({addresses_of(causal, arguments)});
  EXPECT_EQ(addresses[0], reinterpret_cast<void*>(0x1010));  // q
  EXPECT_EQ(addresses[4], reinterpret_cast<void*>(0x1050));  // lse
  EXPECT_EQ(addresses[5], scalars.param("scale"));
  EXPECT_EQ(read<float>(addresses[6]), -std::numeric_limits<float>::infinity());
}

TEST(Addresses, IotaOperandsShareOneBuffer) {
  plan::CudnnStep step;
  step.operands = {{1, plan::IotaOperand{8}}, {2, plan::IotaOperand{3}}};
  const plan::Program program;
  Scalars scalars(program, {});
  int buffer = 0;
  const CudnnOperands operands(step, Memory(program, scalars, &buffer));
  EXPECT_THAT(operands.addresses({}), ::testing::ElementsAre(&buffer, &buffer));
}

TEST(Scalars, EqualConstantsShareAPlaceSoThatStepsCanBeBoundAgain) {
  plan::Program program;
  plan::CudnnStep step;
  step.operands = {{1, plan::ConstantOperand{DType::f32, 0.0}},
                   {2, plan::ConstantOperand{DType::f32, -0.0}},
                   {3, plan::ConstantOperand{DType::i32, 0.0}}};
  program.steps = {step};
  Scalars scalars(program, {});
  const Memory memory(program, scalars);
  const std::vector<void*> first = CudnnOperands(step, memory).addresses({});
  EXPECT_EQ(std::set<void*>(first.begin(), first.end()).size(), 3U);
  EXPECT_EQ(CudnnOperands(step, memory).addresses({}), first);
}

}  // namespace
}  // namespace attn::execute
