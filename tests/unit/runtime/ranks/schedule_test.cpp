// Where tensors are: what is copied, and what is in place.
#include "runtime/ranks/schedule.h"

#include <gmock/gmock.h>

#include "runtime/graph/extent.h"
#include "runtime/ranks/kernels.h"
#include "tests/unit/runtime/ranks/window_family.h"

namespace attn::ranks {
namespace {

using plan::Direction;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ScheduleTest : public ::testing::Test {
 protected:
  Schedule schedule(int rank, Direction direction, bool bhsd = false) {
    const Program& program = division_.ranks[static_cast<std::size_t>(rank)];
    home_ = home_tensors(division_, program, direction);
    for (plan::TensorInfo& tensor : home_) {
      if (bhsd) tensor.strides = row_major_strides(tensor.dims);
    }
    const bool backward = direction == Direction::backward;
    const Part& part = program.parts[0];
    plan_ = testing::plan_of_part("", count(part.rows), count(part.keys), backward, 1).program;
    auto made = schedule_of({division_, program, direction, home_, {&plan_}});
    EXPECT_TRUE(made.ok()) << made.error().to_text();
    return std::move(made).value();
  }
  Address at(const Schedule& schedule, const char* name) const {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (plan_.tensors[i].name == name) return schedule.parts[0][i];
    }
    return {};
  }
  Address home(const char* name, std::int64_t offset = 0) const {
    for (std::size_t i = 0; i < home_.size(); ++i) {
      if (home_[i].name == name) return {Address::In::home, i, offset};
    }
    return {};
  }

  Division division_ = testing::window_division();
  std::vector<plan::TensorInfo> home_;
  plan::Program plan_;
};

constexpr std::int64_t kRowBytes = testing::kHeadsOfWindow * testing::kWidthOfWindow * 2;

TEST_F(ScheduleTest, OfAWindowCopiesOnlyKeysThatOthersFollow) {
  const Schedule first = schedule(0, Direction::forward);
  EXPECT_EQ(first.memory_bytes, 0);
  for (const char* name : {"q", "k", "v", "o", "lse"}) EXPECT_EQ(at(first, name), home(name));
  ASSERT_THAT(first.stages, SizeIs(1));
  EXPECT_THAT(first.stages[0].packs, IsEmpty());
  ASSERT_THAT(first.stages[0].exchange.sends, SizeIs(2));
  EXPECT_EQ(first.stages[0].exchange.sends[0],
            (PlacedPiece{1, home("k", 8 * kRowBytes), 8 * kRowBytes}));

  const Schedule second = schedule(1, Direction::forward);
  EXPECT_EQ(at(second, "q"), home("q"));
  EXPECT_EQ(at(second, "o"), home("o"));
  const StageSchedule& stage = second.stages[0];
  EXPECT_THAT(stage.late, IsEmpty());
  ASSERT_THAT(stage.early, SizeIs(2)) << "its own k and v, behind those that arrive";
  EXPECT_EQ(stage.early[0].from, home("k"));
  EXPECT_EQ(stage.early[0].to, at(second, "k").plus(8 * kRowBytes));
  EXPECT_EQ(stage.exchange.receives[0].at, at(second, "k"));
  for (const Schedule* each : {&first, &second}) {
    EXPECT_THAT(each->outgoing, IsEmpty());
    EXPECT_THAT(each->early, IsEmpty());
    EXPECT_THAT(each->late, IsEmpty());
  }
}

TEST_F(ScheduleTest, OfAWindowSumsGradientsOfKeysThatOthersSee) {
  const Schedule first = schedule(0, Direction::backward);
  EXPECT_EQ(at(first, "dq"), home("dq"));
  EXPECT_THAT(first.outgoing, IsEmpty());
  EXPECT_THAT(first.early, SizeIs(2)) << "keys 0..8 of dk and dv";
  EXPECT_THAT(first.late, SizeIs(2));
  EXPECT_EQ(first.late[0].rows, 8);
  EXPECT_TRUE(first.late[0].uniform);
  const Schedule second = schedule(1, Direction::backward);
  EXPECT_THAT(second.outgoing, SizeIs(2)) << "as f32, because others are added";
  EXPECT_THAT(second.early, SizeIs(2));
  EXPECT_THAT(second.late, IsEmpty());
}

// Values are where they belong, and statistics are copied, 16 bytes at a time: nothing is merged.
TEST(Schedule, CopiesStatisticsOfRowsThatOnePartHas) {
  Division division = testing::window_division();
  Program& program = division.ranks[0];
  program.rows = program.keys = {{0, 8}, {24, 32}};
  division.ranks[1].rows = division.ranks[1].keys = {{8, 24}};
  program.parts = {{0, {{0, 8}}, {{0, 8}}, "a"}, {0, {{24, 32}}, {{0, 32}}, "b"}};
  division.ranks[1].parts = {{0, {{8, 24}}, {{0, 24}}, "c"}};
  add_exchanges(division);
  const std::vector<plan::TensorInfo> home = home_tensors(division, program, Direction::forward);
  const plan::Program few = testing::plan_of_part("", 8, 8, false, 1).program;
  const plan::Program many = testing::plan_of_part("", 8, 32, false, 1).program;
  const auto made = schedule_of({division, program, Direction::forward, home, {&few, &many}});
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  EXPECT_THAT(made->early, IsEmpty());
  EXPECT_THAT(made->late, IsEmpty());
  ASSERT_THAT(made->statistics, SizeIs(2)) << "lse of two parts";
  const Copy& second = made->statistics[1];
  EXPECT_EQ(second.rows, 8);
  EXPECT_EQ(second.heads, testing::kHeadsOfWindow);
  EXPECT_EQ(second.to.offset, 8 * static_cast<std::int64_t>(sizeof(float)));
  std::vector<float> memory(1024);
  std::vector<void*> addresses(home.size(), memory.data());
  const auto launches = launches_of(made->statistics, {memory.data(), nullptr, addresses});
  ASSERT_THAT(launches, SizeIs(1));
  EXPECT_EQ(launches[0].copies.copies[1].vector_bytes, 16);
  EXPECT_EQ(launches[0].copies.copies[1].vectors, 2);
}

// Results do not leave before what arrives: exchanges follow each other.
TEST(Schedule, LetsResultsLeaveAfterTheLastPartThatSendsSome) {
  const auto results_after = [](int rank, std::vector<Part> parts, Direction direction) {
    Division division = testing::window_division();
    for (Program& program : division.ranks) {
      program.parts = {{0, program.rows, program.rows, "own", "own"}};
      if (program.rank == 1) program.parts = parts;
    }
    add_exchanges(division);
    const Program& program = division.ranks[static_cast<std::size_t>(rank)];
    const auto home = home_tensors(division, program, direction);
    std::vector<plan::Program> programs;
    for (const Part& part : program.parts) {
      programs.push_back(testing::plan_of_part("", count(part.rows), count(part.keys),
                                               direction == Direction::backward, 1)
                             .program);
    }
    std::vector<const plan::Program*> plans;
    for (const plan::Program& each : programs) plans.push_back(&each);
    const auto made = schedule_of({division, program, direction, home, plans});
    EXPECT_TRUE(made.ok()) << made.error().to_text();
    return made.ok() ? made->results_after : 99;
  };
  const Intervals own = {{16, 32}}, far = {{8, 16}};
  const std::vector<Part> last = {
      {0, {{16, 24}}, own, "", ""}, {1, own, far, "", ""}, {2, {{24, 32}}, own, "", ""}};
  EXPECT_EQ(results_after(1, last, Direction::backward), 1);
  EXPECT_EQ(results_after(0, last, Direction::backward), 1);
  EXPECT_EQ(results_after(1, last, Direction::forward), 1);
  const std::vector<Part> both = {
      {0, own, far, "", ""}, {1, own, own, "", ""}, {2, own, far, "", ""}};
  EXPECT_EQ(results_after(1, both, Direction::backward), 2);
}

TEST_F(ScheduleTest, OfOtherStridesCopiesWhatIsNotInThePlansLayout) {
  const Schedule first = schedule(0, Direction::forward, true);
  EXPECT_THAT(first.stages[0].packs, SizeIs(2));
  EXPECT_THAT(first.stages[0].early, SizeIs(3));
  EXPECT_THAT(first.early, SizeIs(1));
  EXPECT_GT(first.memory_bytes, 0);
}

TEST_F(ScheduleTest, RefusesPlansThatDoNotFit) {
  const Program& program = division_.ranks[1];
  home_ = home_tensors(division_, program, Direction::forward);
  plan_ = testing::plan_of_part("", 16, 16, false, 1).program;
  const auto made = schedule_of({division_, program, Direction::forward, home_, {&plan_}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::plan_damaged);
  EXPECT_EQ(made.error().message,
            "tensor 'k' of the plan `part1` has other dims than part 0 of rank 1");
  plan_ = testing::plan_of_part("", 16, 24, false, 1).program;
  plan_.tensors.push_back({"bias", plan::TensorRole::captured, DType::f32, {4}, {1}});
  EXPECT_EQ(schedule_of({division_, program, Direction::forward, home_, {&plan_}}).error().message,
            "a plan of rank 1 reads 'bias', which the attention does not have");
}

// Kernels read what they merge: a sum without its maximum, or halves as floats, would be nowhere.
TEST_F(ScheduleTest, RefusesPlansThatDoNotGiveWhatIsMerged) {
  const auto add = [&](const char* name) {
    division_.forward.push_back(
        divided_tensor(name, plan::TensorRole::stats, DType::f32, division_));
  };
  const auto message = [&](int rank, Direction direction,
                           const std::vector<std::string>& statistics, const char* without,
                           DType dtype = DType::f32) {
    const Program& program = division_.ranks[static_cast<std::size_t>(rank)];
    const Part& part = program.parts[0];
    const std::int64_t rows = count(part.rows);
    home_ = home_tensors(division_, program, direction);
    plan_ = testing::plan_of_part("", rows, count(part.keys), direction == Direction::backward, 1)
                .program;
    for (const std::string& name : statistics) {
      plan_.tensors.push_back(testing::tensor_of_part(name, plan::TensorRole::stats, rows, false));
      plan_.tensors.back().dtype = dtype;
    }
    std::erase_if(plan_.tensors,
                  [&](const plan::TensorInfo& tensor) { return tensor.name == without; });
    const auto made = schedule_of({division_, program, direction, home_, {&plan_}});
    if (made.ok()) return std::string("ok");
    EXPECT_EQ(made.error().code, ErrorCode::plan_damaged);
    return made.error().message;
  };
  EXPECT_EQ(message(0, Direction::forward, {}, "lse"), "a plan of rank 0 does not give `lse`");
  EXPECT_EQ(message(1, Direction::forward, {}, "o"), "a plan of rank 1 does not give `o`");
  EXPECT_EQ(message(1, Direction::backward, {}, "dk"), "a plan of rank 1 does not give `dk`");
  add("sum_exp");  // its maximum is merged, too, but not given to the caller
  EXPECT_EQ(message(0, Direction::forward, {"sum_exp"}, ""),
            "a plan of rank 0 does not give `max`");
  EXPECT_EQ(message(0, Direction::forward, {"max"}, ""),
            "a plan of rank 0 does not give `sum_exp`");
  EXPECT_EQ(message(0, Direction::forward, {"max", "sum_exp"}, "", DType::bf16),
            "a plan of rank 0 has another type of `sum_exp`");
  EXPECT_EQ(message(0, Direction::forward, {"max", "sum_exp"}, ""), "ok");
  std::erase_if(division_.backward, [](const WholeTensor& tensor) { return tensor.name == "dk"; });
  EXPECT_EQ(message(1, Direction::backward, {}, "dk"), "ok") << "nobody wants it";
}

}  // namespace
}  // namespace attn::ranks
