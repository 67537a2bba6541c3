#include "runtime/ranks/exchanges.h"

#include <gmock/gmock.h>

#include "tests/unit/runtime/ranks/sample_division.h"

namespace attn::ranks {
namespace {

using Messages = std::vector<Message>;

std::vector<std::string> texts(const Messages& messages) {
  std::vector<std::string> texts;
  for (const Message& message : messages) {
    std::string text = std::to_string(message.peer) + ":";
    for (const Payload& payload : message.tensors)
      text += " " + payload.name + " " + std::string(to_string(payload.dtype));
    texts.push_back(text + ", heads " + to_text({message.key_heads}) + ", " +
                    to_text(message.indices));
  }
  return texts;
}

// The head groups of a team exchange its rows and keys; keys of the other team come later.
TEST(Exchanges, FetchWhatIsNotAtHome) {
  const Division division = testing::sample_division();
  const Program& program = division.ranks[0];
  ASSERT_EQ(program.inputs.size(), 2U);
  EXPECT_THAT(texts(program.inputs[0].receives),
              ::testing::ElementsAre("1: q bf16, heads 0..2, 8..16, 56..64",
                                     "1: k bf16 v bf16, heads 0..2, 8..16, 56..64"));
  EXPECT_THAT(texts(program.inputs[0].sends),
              ::testing::ElementsAre("1: q bf16, heads 2..4, 0..8, 48..56",
                                     "1: k bf16 v bf16, heads 2..4, 0..8, 48..56",
                                     "2: k bf16 v bf16, heads 0..2, 0..8",
                                     "3: k bf16 v bf16, heads 2..4, 0..8"));
  EXPECT_THAT(texts(program.inputs[1].receives),
              ::testing::ElementsAre("2: k bf16 v bf16, heads 0..2, 16..32",
                                     "3: k bf16 v bf16, heads 0..2, 32..48"));
  EXPECT_TRUE(program.inputs[1].sends.empty());
  EXPECT_EQ(texts(program.backward_inputs[0].receives).front(),
            "1: q bf16 o bf16 lse f32 do bf16, heads 0..2, 8..16, 56..64");
}

// A rank computes its rows completely, in both stages: o travels as it is bound. Keys of both teams
// are summed.
TEST(Exchanges, SendPartsOfSumsAsF32) {
  const Division division = testing::sample_division();
  EXPECT_THAT(
      texts(division.ranks[0].results.sends),
      ::testing::ElementsAre("1: o bf16 lse f32 sum_exp f32 max f32, heads 0..2, 8..16, 56..64"));
  EXPECT_THAT(texts(division.ranks[0].gradients.sends),
              ::testing::ElementsAre("1: dq bf16, heads 0..2, 8..16, 56..64",
                                     "1: dk f32 dv f32, heads 0..2, 8..16, 56..64",
                                     "2: dk f32 dv f32, heads 0..2, 16..32",
                                     "3: dk f32 dv f32, heads 0..2, 32..48"));
  // Two batches, rows, query heads or key heads, widths.
  const Exchange& gradients = division.ranks[0].gradients;
  EXPECT_EQ(bytes_of(gradients.sends[0], division), 2 * 16 * 4 * 16 * 2);
  EXPECT_EQ(bytes_of(gradients.sends[1], division), 2 * 16 * 2 * (16 + 8) * 4);
}

void expect_same(const Division& division, const Exchange& (*of)(const Program&, std::size_t),
                 std::size_t stage) {
  for (const Program& from : division.ranks) {
    for (const Program& to : division.ranks) {
      Messages sent, received;
      for (Message message : of(from, stage).sends) {
        if (message.peer != to.rank) continue;
        message.peer = from.rank;
        sent.push_back(message);
      }
      for (const Message& message : of(to, stage).receives) {
        if (message.peer == from.rank) received.push_back(message);
      }
      EXPECT_EQ(sent, received) << from.rank << " to " << to.rank;
    }
  }
}

TEST(Exchanges, AreReceivedAsTheyAreSent) {
  const Division division = testing::sample_division();
  for (std::size_t stage = 0; stage < 2; ++stage) {
    expect_same(
        division,
        [](const Program& of, std::size_t at) -> const Exchange& { return of.inputs[at]; }, stage);
    expect_same(
        division,
        [](const Program& of, std::size_t at) -> const Exchange& { return of.backward_inputs[at]; },
        stage);
  }
  expect_same(
      division, [](const Program& of, std::size_t) -> const Exchange& { return of.results; }, 0);
  expect_same(
      division, [](const Program& of, std::size_t) -> const Exchange& { return of.gradients; }, 0);
}

TEST(Exchanges, OfOneRankAreThoseOfAll) {
  const Division all = testing::sample_division();
  Division one = all;
  for (Program& program : one.ranks) {
    program.inputs = program.backward_inputs = {};
    program.results = program.gradients = {};
  }
  add_exchanges(one, 3);
  EXPECT_EQ(one.ranks[3], all.ranks[3]);
  EXPECT_TRUE(one.ranks[0].inputs.empty());
}

}  // namespace
}  // namespace attn::ranks
