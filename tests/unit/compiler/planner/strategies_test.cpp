#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "compiler/driver/choice.h"
#include "compiler/driver/driver.h"
#include "compiler/planner/search.h"
#include "runtime/base/check.h"
#include "tests/support/contexts.h"
#include "tests/support/golden.h"

namespace attn::planner::strategies_tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Strategies, AreFoundByName) {
  const auto all = strategies();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().name, "composite");
  EXPECT_EQ(strategy_names().front(), kAnyLowering);
  EXPECT_THAT(strategy_names(), SizeIs(strategies(kAnyOrSlow).size() + 1));
  for (const Strategy& lowering : all) {
    ASSERT_THAT(strategies(lowering.name), SizeIs(1));
    EXPECT_EQ(strategies(lowering.name).front().name, lowering.name);
  }
  EXPECT_TRUE(strategies("compound").empty());
}

TEST(Engines, HaveTheStrategiesInOrder) {
  std::vector<std::string_view> names, slow;
  for (const engines::Engine& engine : engines::engines()) {
    for (const Strategy& strategy : engine.strategies) {
      (strategy.kind == Strategy::Kind::slow ? slow : names).push_back(strategy.name);
    }
  }
  names.insert(names.end(), slow.begin(), slow.end());  // the slow ones are last
  ASSERT_EQ(names.size(), strategies(kAnyOrSlow).size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(strategies(kAnyOrSlow)[i].name, names[i]);
  }
}

// So that a name is either an engine's, with all of its strategies, or a strategy's.
TEST(Engines, OnlyAnEngineOfOneStrategyHasItsName) {
  for (const engines::Engine& engine : engines::engines()) {
    for (const Strategy& strategy : engine.strategies) {
      EXPECT_EQ(engine_of(strategy.name), &engine);
      for (const engines::Engine& other : engines::engines()) {
        EXPECT_TRUE(strategy.name != other.name ||
                    (&other == &engine && engine.strategies.size() == 1))
            << strategy.name;
      }
    }
  }
  EXPECT_EQ(engine_of("compound"), nullptr);
}

TEST(Engines, AreFoundByName) {
  std::vector<std::string> names = {"auto"};
  for (const engines::Engine& engine : engines::engines()) {
    names.emplace_back(engine.name);
    const auto found = strategies(engine.name);
    ASSERT_THAT(found, SizeIs(engine.strategies.size()));
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, engine.strategies[i].name);
    }
  }
  EXPECT_EQ(engine_names(), names);
}

TEST(Strategies, SlowOnesAreTakenOnlyWhenAllowed) {
  for (const Strategy& lowering : strategies())
    EXPECT_FALSE(lowering.kind == Strategy::Kind::slow) << lowering.name;
  EXPECT_EQ(strategies(kAnyOrSlow).back().name, "unfused");
  EXPECT_TRUE(strategies("unfused").front().kind == Strategy::Kind::slow);
}

TEST(Engines, AreInTheManual) {
  std::string table = "| engine | what computes | its strategies |\n|---|---|---|\n";
  for (const engines::Engine& engine : engines::engines()) {
    std::vector<std::string> names;
    for (const Strategy& each : engine.strategies) names.push_back(fmt::format("`{}`", each.name));
    table += fmt::format("| `{}` | {} | {} |\n", engine.name, engine.what, fmt::join(names, ", "));
  }
  attn::testing::expect_table("docs/cli.md", "engines", table);
}

TEST(Strategies, AreInTheManual) {
  std::string table = "| strategy | the attention as |\n|---|---|\n";
  for (const Strategy& strategy : strategies(kAnyOrSlow)) {
    table += fmt::format("| `{}` | {} |\n", strategy.name, strategy.what);
  }
  attn::testing::expect_table("docs/cli.md", "strategies", table);
}

TEST(Rewrites, AreInTheManual) {
  std::string table = "| rewrite | effect |\n|---|---|\n";
  for (const target::Rewrite& rewrite : target::rewrites()) {
    table += fmt::format("| `{}` | {} |\n", rewrite.name, rewrite.what);
  }
  attn::testing::expect_table("docs/cli.md", "rewrites", table);
}

TEST(ErrorOf, ASingleRefusalIsItsError) {
  const Error refused{ErrorCode::unsupported, "no", {"try yes"}, R"({"line": 3})"};
  const Error error = error_of({{"composite", refused}});
  EXPECT_EQ(error.to_text(), refused.to_text());
  EXPECT_EQ(error.payload, refused.payload);
}

TEST(ErrorOf, SeveralKeepTheFirstAndAddTheOthers) {
  const Error error = error_of(
      {{"composite", {ErrorCode::unsupported, "no", {"try yes"}, R"({"line": 3, "column": 7})"}},
       {"unified", {ErrorCode::unsupported, "nor this", {"engine 4: too large"}, ""}}});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message, "no");
  EXPECT_THAT(error.notes,
              ElementsAre("try yes", "strategy `unified`: nor this", "  engine 4: too large"));
  const auto payload = nlohmann::json::parse(error.payload);
  EXPECT_EQ(payload["line"], 3);
  ASSERT_THAT(payload["strategies"], SizeIs(2));
  EXPECT_EQ(payload["strategies"][0]["strategy"], "composite");
  EXPECT_EQ(payload["strategies"][0]["detail"]["column"], 7);
  EXPECT_EQ(payload["strategies"][1]["message"], "nor this");
}

ir::Attention attention_of(const std::string& clauses) {
  const support::Source source("f.attn", "attention f { " + clauses + " }");
  diag::Sink sink(source);
  std::optional<ir::Attention> attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), diag::to_text(sink));
  return std::move(*attention);
}

constexpr const char* kDims = "dims B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 128; ";

TEST(Search, AreInOrderOfTheirPredictedTime) {
  for (const char* mask :
       {"mask q_idx >= kv_idx;", "mask q_idx // 256 == kv_idx // 256;",
        "tensor m: bool[32, 32]; mask m[q_idx // 128, kv_idx // 128];",
        "tensor doc: i32[Skv] monotone runs(8); mask doc[q_idx] == doc[kv_idx];"}) {
    const ir::Attention attention = attention_of(std::string(kDims) + mask);
    Search search(attention, kAnyOrSlow, {});
    const Candidate* last = nullptr;
    std::size_t count = 0;
    while (true) {
      const auto next = search.next();
      ASSERT_TRUE(next.ok());
      if (*next == nullptr) break;
      ++count;
      const Candidate& candidate = **next;
      EXPECT_GE(candidate.lowered->predicted_ms, candidate.bound) << candidate.strategy->name;
      if (last != nullptr && candidate.strategy->kind != Strategy::Kind::slow) {
        EXPECT_GE(candidate.lowered->predicted_ms, last->lowered->predicted_ms);
      }
      last = &candidate;
    }
    EXPECT_GE(count, 2U) << mask;
    EXPECT_EQ(last->strategy->name, "unfused");
  }
}

TEST(Search, OnlyWhatMayWinIsLowered) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, kAnyOrSlow, {});
  const auto first = search.next();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->strategy->name, "native");
  for (const Candidate& candidate : search.all()) {
    EXPECT_EQ(candidate.lowered.has_value(), &candidate == *first) << candidate.strategy->name;
  }
}

TEST(Search, TakeNoLongerThanTheTimeOfABuild) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, kAnyLowering, {.timeout = std::chrono::nanoseconds(1)});
  const auto late = search.next();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::worker);
  EXPECT_THAT(late.error().message, ::testing::HasSubstr("the build took longer than 1e-09 s"));
  EXPECT_THAT(late.error().message, ::testing::HasSubstr(" s planning"));
  Search enough(attention, kAnyLowering, {.timeout = std::chrono::hours(1)});
  EXPECT_TRUE(enough.next().ok());
}

// The strategies of the candidates that are returned, with the numbers of their programs.
std::vector<std::string> left_of(Search& search) {
  std::vector<std::string> left;
  for (Candidate* next = search.next().value(); next != nullptr; next = search.next().value()) {
    left.push_back(fmt::format("{} {}", next->strategy->name, next->program));
  }
  return left;
}

TEST(Search, TheNextProgramOfAStrategyFollowsIt) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, kAnyLowering, {});
  Candidate* const best = search.next().value();
  search.add_next_of(*best);
  Candidate* const second = search.next().value();
  EXPECT_EQ(second->strategy, best->strategy);
  EXPECT_EQ(second->program, 1U);
  EXPECT_NE(second->lowered->program, best->lowered->program);
  search.failed(*best, {ErrorCode::unsupported, "no", {}, ""});
  search.measured(*second, 2);
  EXPECT_THAT(search.tried(), ElementsAre(best, second));
  EXPECT_THAT(left_of(search), ElementsAre("composite 0", "unified 0", "block_sparse 0"));
}

TEST(Search, ThereIsAnEndOfPrograms) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, "native", {});
  std::size_t programs = 0;
  while (Candidate* const next = search.next().value()) {
    EXPECT_EQ(next->program, programs++);
    search.add_next_of(*next);
  }
  EXPECT_GT(programs, 1U);
  EXPECT_EQ(search.all().size(), programs);
}

TEST(Search, BeginsAgainWithTheOneThatIsNamed) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, kAnyLowering, {});
  Candidate* const native = search.next().value();
  search.add_next_of(*native);
  Candidate* const second = search.next().value();
  Candidate* const composite = search.next().value();
  search.failed(*native, {ErrorCode::unsupported, "no", {}, ""});
  search.begin(composite);
  EXPECT_TRUE(search.tried().empty());
  EXPECT_FALSE(native->failed);
  EXPECT_THAT(left_of(search),
              ElementsAre("composite 0", "native 0", "unified 0", "block_sparse 0"));
  search.begin(second);
  EXPECT_EQ(search.next().value(), second);
  EXPECT_THAT(left_of(search), ElementsAre("composite 0", "unified 0", "block_sparse 0"));
}

TEST(Search, GraphsThatCudnnCompilesForMinutesComeLast) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  Search search(attention, kAnyLowering, {});
  Candidate* composite = search.next().value();
  while (composite->strategy->name != "composite") composite = search.next().value();
  EXPECT_FALSE(composite->long_build());
  for (plan::Step& step : composite->lowered->program.steps) {
    auto* const cudnn = std::get_if<plan::CudnnStep>(&step);
    if (cudnn != nullptr) cudnn->graph.nodes.resize(401, cudnn->graph.nodes.front());
  }
  search.begin();
  EXPECT_THAT(left_of(search),
              ElementsAre("native 0", "unified 0", "block_sparse 0", "composite 0"));
  const auto refused = driver::with_others({}, search, strategies("native").front()).refused;
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused.front().lowering, "composite");
  EXPECT_EQ(refused.front().error.message,
            "cuDNN would compile its graph of 401 nodes for minutes");
  const auto taken = std::ranges::find_if(
      search.all(), [](const Candidate& each) { return each.strategy->name == "native"; });
  ASSERT_NE(taken, search.all().end());
  const auto choice = driver::choice_of(search, *taken);
  const auto told = std::ranges::find(choice, "composite", &plan::Alternative::strategy);
  ASSERT_NE(told, choice.end());
  EXPECT_EQ(told->refused, refused.front().error.message) << "the plan says so, too";
}

TEST(FirstTaken, GoesOnAfterARefusalOrAFailureOfOneStrategy) {
  const ir::Attention attention = attention_of(std::string(kDims) + "mask q_idx >= kv_idx;");
  std::vector<std::string> tried;
  const auto fail = [&tried](ErrorCode code, std::string_view but = "") {
    return [&tried, code, but](const Candidate& candidate) -> Result<int> {
      tried.emplace_back(candidate.strategy->name);
      if (candidate.strategy->name == but) return 7;
      return Result<int>(code, std::string(candidate.strategy->name));
    };
  };
  for (const ErrorCode code : {ErrorCode::unsupported, ErrorCode::worker, ErrorCode::cudnn}) {
    tried.clear();
    Search search(attention, kAnyLowering, {});
    const auto none = search.first_taken(fail(code));
    EXPECT_EQ(none.error().code, code);
    EXPECT_EQ(none.error().message, "composite");
    EXPECT_THAT(tried, ElementsAre("native", "composite", "unified", "block_sparse"));
  }
  tried.clear();
  Search search(attention, kAnyLowering, {});
  EXPECT_EQ(search.first_taken(fail(ErrorCode::io)).error().code, ErrorCode::io);
  EXPECT_THAT(tried, SizeIs(1));
  Search again(attention, kAnyLowering, {});
  EXPECT_EQ(again.first_taken(fail(ErrorCode::unsupported, "block_sparse")).value(), 7);
}

// What each lowering says of a spec of these dims; "" where it serves it.
std::map<std::string, std::string> said(const std::string& clauses, bool backward) {
  const ir::Attention attention = attention_of(clauses);
  const target::Context context = attn::testing::in(backward);
  std::map<std::string, std::string> said;
  for (const Strategy& strategy : strategies(kAnyOrSlow)) {
    Subject subject(attention, context);
    const auto lowered = strategy.lower(subject);
    said[std::string(strategy.name)] = lowered.ok() ? "" : lowered.error().message;
  }
  return said;
}

TEST(Strategies, ASinkThatDependsOnTheBatchIsServedByNone) {
  const std::string clauses =
      "Hq = 4, Hkv = 2, Sq = 128, Skv = 128, D = 64; tensor s: f32[B, Hq]; sink s[b, h]; "
      "mask q_idx >= kv_idx;";
  for (const bool backward : {false, true}) {
    for (const auto& [way, message] : said("dims B = 2, " + clauses, backward)) {
      EXPECT_NE(message, "") << way;
      if (way == "composite" || way == "unfused") {
        EXPECT_THAT(message, HasSubstr("on the batch"));
      }
    }
    EXPECT_EQ(said("dims B = 1, " + clauses, backward)["composite"], "");
  }
}

TEST(Strategies, SigmoidIsNotServedByCudnn) {
  const std::string clauses =
      "dims B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 128, D = 64; normalize sigmoid;";
  for (const bool backward : {false, true}) {
    for (const auto& [way, message] : said(clauses, backward)) {
      const bool served = way == "unfused" || way == "native";
      EXPECT_EQ(message == "", served) << way << ": " << message;
      if (way == "composite" || way == "parts") {
        EXPECT_THAT(message, HasSubstr("softmax, not sigmoid"));
      }
    }
    EXPECT_THAT(said(clauses + " dropout 0.1;", backward)["unfused"],
                HasSubstr("no random dropout"));
  }
}

// What is told when nothing serves.
Error all_refused(const std::string& clauses, bool backward, std::int64_t sm = 90) {
  target::Context context;
  context.direction = backward ? plan::Direction::backward : plan::Direction::forward;
  context.gpu.sm = sm;
  Search search(attention_of(clauses), kAnyLowering, context);
  while (true) {
    const auto next = search.next();
    if (!next.ok()) return next.error();
    if (*next == nullptr) break;
  }
  Candidate composite{&strategies("composite").front()};
  search.failed(composite, {ErrorCode::unsupported, "too wide", {}, ""});
  return search.all_failed();
}

TEST(Strategies, ARefusalBeginsWithTheScoreAndWhatNativeLacks) {
  const std::string wide = "dims B = 2, Hq = 4, Hkv = 2, Sq = 128, Skv = 128, D = 512; ";
  const std::string capped = wide + "score tanh(score / 50) * 50;";
  const Error error = all_refused(capped, true);
  EXPECT_EQ(
      error.message,
      "`tanh(score / 50) * 50`: attnc's own engine has no backward above D 256 (this is 512)");
  EXPECT_THAT(error.notes, ::testing::Contains("strategy `composite`: too wide"));
  EXPECT_THAT(error.payload, HasSubstr(R"("column":)"));
  EXPECT_EQ(all_refused(wide, true).message,
            "attnc's own engine has no backward above D 256 (this is 512)");
  EXPECT_EQ(all_refused(wide, true, 100).message,
            error.message.substr(error.message.find("attnc")));
  // It is for other GPUs: what cuDNN says is of more use.
  const Error other = all_refused(capped, true, 75);
  EXPECT_EQ(other.message, "`tanh(score / 50) * 50`: too wide");
  EXPECT_THAT(other.notes, ::testing::Contains(HasSubstr("compute capability 8.0 and later")));
  EXPECT_THAT(all_refused(wide + "quantize per_tensor; dtype e4m3;", true).message,
              HasSubstr("8-bit attention has gradients only with a `grad` clause"));
}

TEST(Strategies, PartsBeginAtMultiplesOf16Bytes) {
  const std::string dims = "dims B = 1, Hq = 1, Sq = 512, Skv = 512, D = 64; ";
  const std::string window = "mask (q_idx >= kv_idx && q_idx - kv_idx < 64) || ";
  const std::string strided = "strides(512 * 68, 68, 68, 1)";
  const std::string keys = "layout q: bshd, k: " + strided + ", v: " + strided + ", o: bshd; ";
  const std::string rows = "layout q: " + strided + ", k: bshd, v: bshd, o: bshd; ";
  EXPECT_THAT(said(dims + keys + window + "kv_idx == 7;", false)["parts"],
              HasSubstr("not begin at a multiple of 16 bytes"));
  EXPECT_THAT(said(dims + rows + window + "q_idx == 7;", false)["parts"],
              HasSubstr("not begin at a multiple of 16 bytes"));
  EXPECT_EQ(said(dims + window + "kv_idx == 7;", false)["parts"], "");
  EXPECT_EQ(said(dims + keys + window + "kv_idx == 7;", false)["composite"], "");
}

}  // namespace
}  // namespace attn::planner::strategies_tests
