#include "runtime/ranks/program_json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/unit/runtime/ranks/sample_division.h"

namespace attn::ranks {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

TEST(ProgramJson, IsLossless) {
  Division division = testing::sample_division();
  for (const int only : {-1, 2}) {
    division.only = only;
    const std::string json = to_json(division);
    const Result<Division> back = parse(json);
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(*back, division);
    EXPECT_EQ(to_json(*back), json);
  }
  const Result<Division> of_rank = parse(to_json(division), 1);
  ASSERT_TRUE(of_rank.ok());
  EXPECT_EQ(of_rank->ranks[1], division.ranks[1]);
  EXPECT_TRUE(of_rank->ranks[0].inputs.empty());
  EXPECT_EQ(parse(to_json(division), 4).error().code, ErrorCode::invalid_argument);
}

TEST(ProgramJson, HasForwardsOrBackwardsAlone) {
  for (const bool forward : {false, true}) {
    Division division = testing::sample_division();
    (forward ? division.backward : division.forward).clear();
    for (Program& program : division.ranks) {
      for (Part& part : program.parts) (forward ? part.backward : part.forward).clear();
    }
    add_exchanges(division);
    const Result<Division> back = parse(to_json(division));
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(*back, division);
  }
}

// A rank of thousands of groups has what its team has, written once.
TEST(ProgramJson, IsSmallForManyRanks) {
  Division division;
  division.name = "heads";
  division.query_heads = division.key_heads = 1024;
  division.groups_of_heads = 1024;
  division.rows = division.keys = 1 << 20;
  division.forward = testing::sample_tensors(division, false);
  for (int rank = 0; rank < 1024; ++rank) {
    const Intervals home = {{rank * 1024, (rank + 1) * 1024}};
    const Part part{0, {{0, 1 << 20}}, {{0, 1 << 20}}, "heads_part0"};
    division.ranks.push_back({rank, {rank, rank + 1}, home, home, {part}, {}, {}, {}, {}});
  }
  const std::string json = to_json(division);
  EXPECT_LT(json.size(), 100U << 10);
  const Result<Division> back = parse(json, 7);
  ASSERT_TRUE(back.ok()) << back.error().to_text();
  EXPECT_EQ(back->ranks[7].inputs.front().sends.size(), 2U * 1023);
}

struct Fault {
  const char* pointer;  // of what is replaced
  const char* value;
  const char* message;
};

TEST(ProgramJson, NamesWhatIsDamaged) {
  const Json whole = Json::parse(to_json(testing::sample_division()));
  for (const auto& [pointer, value, message] : std::vector<Fault>{
           {"/dims/B", "0", "$.dims.B: "},
           {"/dims/Sq", "3000000000", "$.dims.Sq: "},
           {"/dims/Hq", "6", "$.dims.Hq: is no multiple of the key heads"},
           {"/dims/Hkv", "1", "$.groups_of_heads: divides"},
           {"/dims/Dqk", "32", "$.forward: has a tensor `q` that it cannot have"},
           {"/more", "1", "more"},
           {"/dtype", "\"f77\"", "$.dtype: is not a known name"},
           {"/dtype", "\"e4m3\"", "$.dtype: is not a type that can be merged"},
           {"/groups_of_heads", "3", "$.groups_of_heads: divides"},
           {"/groups_of_heads", "0", "$.groups_of_heads: "},
           {"/rank", "4", "$.rank: "},
           {"/homes", "[]", "$.homes: are too few or too many ranks"},
           {"/homes/0/rows", "[0, 8]", "$.homes: do not have every row and every key once"},
           {"/homes/0/keys", "[0, 9, 48, 56]", "$.homes: do not have every row"},
           {"/homes/1/rows", "[8, 16, 56, 65]", "$.homes[1].rows: is not an ascending set"},
           {"/homes/1/rows", "[56, 64, 8, 16]", "$.homes[1].rows: is not an ascending set"},
           {"/homes/1/rows", "[8, 16, 16, 64]", "$.homes[1].rows: is not an ascending set"},
           {"/homes/1/rows", "[8]", "$.homes[1].rows: is not an ascending set"},
           {"/homes/1/rows", "[-1, 5]", "$.homes[1].rows: is not an ascending set"},
           {"/forward/0/name", "\"k\"", "$.forward: has a tensor `k` that it cannot have"},
           {"/forward/0/role", "\"output\"", "$.forward: has a tensor `q` that it cannot have"},
           {"/forward/0/dtype", "\"f32\"", "$.forward: has a tensor `q` that it cannot have"},
           {"/forward/3/name", "\"lengths_q\"", "$.forward: has `lengths_q` twice"},
           {"/forward/3/divided", "\"keys\"", "$.forward: has a tensor `bias`"},
           {"/forward/3/role", "\"stats\"", "$.forward: has a tensor `bias`"},
           {"/forward/3/dims", "[1048576, 1048576, 1048576]", "$.forward[3].dims: "},
           {"/forward/3/dims", "[-8]", "$.forward[3].dims: "},
           {"/forward/4/dtype", "\"f32\"", "$.forward: lacks the lengths"},
           {"/forward/5/name", "\"p\"", "$.forward: has a tensor `p`"},
           {"/backward/11/dims", "[4]", "$.backward: has a tensor `d_bias`"},
           {"/backward/11/dtype", "\"e4m3\"", "$.backward: has a tensor `d_bias`"},
           {"/sigmoid", "true", "$.forward: has a tensor `lse` that it cannot have"},
           {"/teams", "[[]]", "$.teams: are 1, but must be 2"},
           {"/teams/0/0/stage", "2", "$.teams[0][1].stage: "},
           {"/teams/0/0/stage", "-1", "$.teams[0][0].stage: "},
           {"/teams/0/1/stage", "2000000000", "$.teams[0][1].stage: "},
           {"/teams/0/0/rows", "[]", "$.teams[0][0].rows: is empty"},
           {"/teams/0/0/keys", "[0, 65]", "$.teams[0][0].keys: is not an ascending set"},
           {"/teams/0/0/forward", "[]", "$.teams[0][0].forward: does not name one plan"},
           {"/teams/0/0/forward", "[\"a\", \"b\", \"c\"]", "$.teams[0][0].forward: does not name"},
           {"/teams/0/0/backward", "[\"\"]", "$.teams[0][0].backward[0]: is empty"},
           {"/teams/0/0/renamed/0/name", "\"nothing\"", "is no tensor of the attention"},
           {"/teams/0/0/numbers/0/of", "\"no\"", "is neither rows nor keys"},
           {"/backward", "[]", "$.teams[0][0].backward: does not name"}}) {
    Json json = whole;
    json[Json::json_pointer(pointer)] = Json::parse(value);
    const Result<Division> division = parse(json.dump());
    ASSERT_FALSE(division.ok()) << pointer << " " << value;
    EXPECT_EQ(division.error().code, ErrorCode::plan_damaged);
    EXPECT_THAT(division.error().message, HasSubstr("the plan file's ranks: ")) << pointer;
    EXPECT_THAT(division.error().message, HasSubstr(message)) << pointer << " " << value;
  }
  for (const auto& [name, member] : whole.items()) {
    Json json = whole;
    json.erase(name);
    EXPECT_FALSE(parse(json.dump()).ok()) << name;
  }
}

}  // namespace
}  // namespace attn::ranks
