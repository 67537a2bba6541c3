#include "compiler/sharding/rank_program.h"

#include <gmock/gmock.h>

#include "compiler/sharding/choose.h"
#include "runtime/ranks/program_json.h"
#include "tests/unit/compiler/sharding/reading.h"

namespace attn::sharding::rank_program_tests {
namespace {

std::vector<std::string> names(const std::vector<ranks::WholeTensor>& tensors) {
  std::vector<std::string> names;
  for (const ranks::WholeTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

// In a fixed order, whatever the order of clauses; tensors that nothing reads are not bound.
TEST(RankProgram, HasTheTensorsOfTheWhole) {
  const ranks::Division division = frame_of(
      read("tensor unused: f32[Sq]; learn bias: f32[Hq]; param slope: f32; lengths q, kv; sink 0; "
           "score score * slope + bias[h]; outputs o, sum_exp_with_sink; grad bias, k, q;"));
  EXPECT_THAT(names(division.forward),
              ::testing::ElementsAre("q", "k", "v", "lengths_q", "lengths_kv", "bias", "o", "lse",
                                     "sum_exp_with_sink"));
  EXPECT_THAT(names(division.backward),
              ::testing::ElementsAre("q", "k", "v", "o", "lse", "do", "lengths_q", "lengths_kv",
                                     "bias", "dq", "dk", "d_bias"));
  EXPECT_THAT(names(frame_of(read("grad v, lse;")).backward),
              ::testing::ElementsAre("q", "k", "v", "o", "lse", "do", "dlse", "dv"));
  EXPECT_TRUE(division.clears_padding);
  EXPECT_FALSE(frame_of(read("lengths q;")).clears_padding);  // masks hide padding without a sink
  EXPECT_THAT(names(frame_of(read("normalize sigmoid;")).backward),
              ::testing::ElementsAre("q", "k", "v", "do", "dq", "dk", "dv"));
  EXPECT_THAT(names(frame_of(read("dropout 0.5;")).forward),
              ::testing::ElementsAre("q", "k", "v", "seed", "offset", "o", "lse"));
}

// What the compiler makes, the runtime accepts.
TEST(RankProgram, IsValid) {
  const ir::Attention attention =
      read("lengths q; sink 0; mask q_idx >= kv_idx; shard both; grad q, v, lse;");
  const WorkMap map = work_map(attention, 4, nullptr);
  const auto choice = choose(attention, 4, estimating(attention, map, {}, {}));
  ASSERT_TRUE(choice.ok()) << choice.error().to_text();
  ranks::Division division = rank_programs(choice->sharding, map, attention).division;
  for (ranks::Program& program : division.ranks) {
    for (ranks::Part& part : program.parts) part.forward = "forward", part.backward = "backward";
  }
  const Result<ranks::Division> back = ranks::parse(ranks::to_json(division), 0);
  ASSERT_TRUE(back.ok()) << back.error().to_text();
  EXPECT_EQ(back->ranks[3].parts, division.ranks[3].parts);
  EXPECT_EQ(back->ranks[3].key_heads, division.ranks[3].key_heads);
}

}  // namespace
}  // namespace attn::sharding::rank_program_tests
