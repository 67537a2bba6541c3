#include "runtime/ranks/agree.h"

#include "tests/support/local_transport.h"
#include "tests/unit/runtime/ranks/on_standins.h"

namespace attn::ranks {
namespace {

using attn::testing::LocalGroup;
using attn::testing::LocalTransport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kHash(32, 'a');

class AgreeTest : public OnStandins {
 protected:
  struct Saying {
    Status own;
    std::string hash = kHash;
  };
  // What each rank gets if each says so.
  std::vector<Status> agree_all(const std::vector<Saying>& sayings) {
    const auto ranks = static_cast<int>(sayings.size());
    const auto group = std::make_shared<LocalGroup>(ranks);
    std::vector<Status> all(sayings.size());
    in_ranks(ranks, [&](int rank) {
      LocalTransport transport(group, rank, device());
      const auto index = static_cast<std::size_t>(rank);
      all[index] = agree(transport, sayings[index].hash, sayings[index].own, 30);
    });
    return all;
  }
};

Status failure(ErrorCode code, const std::string& message) {
  return Error{code, message, {"a note"}, "{}"};
}

TEST_F(AgreeTest, OkIfAllAreWellAndHaveTheSameFile) {
  for (const std::size_t ranks : {1, 2, 5}) {
    for (const Status& status : agree_all(std::vector<Saying>(ranks))) {
      EXPECT_TRUE(status.ok()) << status.error().to_text();
    }
  }
}

TEST_F(AgreeTest, TheFailureOfOneIsTheErrorOfAll) {
  const auto all = agree_all({{}, {failure(ErrorCode::cuda, "no memory")}, {}});
  for (const std::size_t rank : {0, 2}) {
    EXPECT_EQ(all[rank].error().code, ErrorCode::cuda);
    EXPECT_EQ(all[rank].error().message, "rank 1 could not prepare: no memory");
    EXPECT_THAT(all[rank].error().notes, IsEmpty());
  }
  EXPECT_EQ(all[1].error().to_text(), "no memory\n  note: a note") << "its own";
}

TEST_F(AgreeTest, OfSeveralFailuresTheLowestRanksIsToldAndTheOthersAreNamed) {
  const auto all = agree_all({{},
                              {failure(ErrorCode::plan_device, "not for this GPU")},
                              {failure(ErrorCode::cuda, "no memory")},
                              {failure(ErrorCode::io, "no file")}});
  EXPECT_EQ(all[0].error().code, ErrorCode::plan_device);
  EXPECT_EQ(all[0].error().message, "rank 1 could not prepare: not for this GPU");
  EXPECT_THAT(all[0].error().notes, ElementsAre("nor could ranks 2 and 3"));
  EXPECT_EQ(all[2].error().code, ErrorCode::cuda);
  EXPECT_EQ(all[3].error().code, ErrorCode::io);
}

TEST_F(AgreeTest, DifferentFilesAreAMismatchForAll) {
  const std::string other(32, 'b');
  for (const Status& status : agree_all({{}, {{}, other}, {}, {{}, other}})) {
    EXPECT_EQ(status.error().code, ErrorCode::mismatch);
    EXPECT_EQ(status.error().message, "ranks 1 and 3 have another file than rank 0");
    EXPECT_THAT(status.error().notes,
                ElementsAre("rank 0: " + kHash, "rank 1: " + other, "rank 3: " + other));
  }
  std::vector<Saying> many(20, {{}, other});
  many[0] = {};
  const Error error = agree_all(many)[5].error();
  EXPECT_EQ(error.message,
            "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more have another file than rank 0");
  EXPECT_EQ(error.notes.size(), 9u);
}

TEST_F(AgreeTest, AFailureIsToldRatherThanADifferentFile) {
  const auto all = agree_all({{failure(ErrorCode::io, "no file"), ""}, {}});
  EXPECT_EQ(all[1].error().message, "rank 0 could not prepare: no file");
}

TEST_F(AgreeTest, LongMessagesAreCutBetweenCharacters) {
  std::string message = "x";
  for (int i = 0; i < 200; ++i) message += "\u00e9";  // two bytes
  const std::string told = agree_all({{failure(ErrorCode::io, message)}, {}})[1].error().message;
  EXPECT_THAT(message, HasSubstr(told.substr(told.find(": ") + 2)));
  EXPECT_EQ(told.substr(told.size() - 2), "\u00e9");
  EXPECT_GT(told.size(), 200u);
}

TEST_F(AgreeTest, AnAbsentRankIsAnErrorOfTheOthersButOwnFailuresComeFirst) {
  const auto group = std::make_shared<LocalGroup>(3);
  in_ranks(2, [&](int rank) {
    LocalTransport transport(group, rank, device());
    const Status own = rank == 0 ? Status() : failure(ErrorCode::cuda, "no memory");
    const Status status = agree(transport, kHash, own, 0);
    EXPECT_EQ(status.error().code, rank == 0 ? ErrorCode::nccl : ErrorCode::cuda);
  });
}

}  // namespace
}  // namespace attn::ranks
