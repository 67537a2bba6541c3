#include "runtime/worker/protocol.h"

#include <gmock/gmock.h>

#include "tests/unit/runtime/worker/graphs.h"

namespace attn::worker {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(Protocol, RequestsComeBackAsTheyWere) {
  const CompileRequest compile{"/some/folder",
                               "{\"deviceVer\": 900}",
                               {testing::attention_graph({}, testing::Mask::causal),
                                testing::attention_graph({}, testing::Mask::none)}};
  const auto read = request_from_json(to_json(compile));
  ASSERT_TRUE(read.ok()) << read.error().to_text();
  const auto& back = std::get<CompileRequest>(*read);
  EXPECT_EQ(back.cudnn_folder, compile.cudnn_folder);
  EXPECT_EQ(back.device_json, compile.device_json);
  EXPECT_EQ(back.graphs, compile.graphs);
  EXPECT_EQ(graph::position_of(back.graphs.front().nodes[5]).line, 6U);

  const auto version = request_from_json(to_json(VersionRequest{"x"}));
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(std::get<VersionRequest>(*version).cudnn_folder, "x");

  const auto kernels =
      request_from_json(to_json(KernelsRequest{"x", {{"first", 90, true}, {"second", 80, false}}}));
  ASSERT_TRUE(kernels.ok()) << kernels.error().to_text();
  const auto& second = std::get<KernelsRequest>(*kernels).kernels.at(1);
  EXPECT_EQ(second.text, "second");
  EXPECT_EQ(second.sm, 80);
  EXPECT_FALSE(second.is_general);
}

TEST(Protocol, RequestsThatAreNone) {
  for (const char* text :
       {"", "{", "[]", "{}", "{\"request\": 3}", "{\"request\": \"compile\"}",
        "{\"request\": \"dance\", \"cudnn_folder\": \"\"}",
        "{\"request\": \"compile\", \"cudnn_folder\": \"\", \"device\": \"\", "
        "\"graphs\": [{\"tensors\": 1}]}",
        "{\"request\": \"compile\", \"cudnn_folder\": \"\", \"device\": \"\", \"graphs\": []}",
        "{\"request\": \"kernels\", \"cudnn_folder\": \"\", \"kernels\": []}"}) {
    EXPECT_FALSE(request_from_json(text).ok()) << text;
  }
}

template <typename T>
T round_trip(const T& value) {
  const auto line = to_line(Message(value));
  EXPECT_TRUE(line.ok());
  EXPECT_THAT(*line, EndsWith("\n"));
  EXPECT_EQ(line->find('\n'), line->size() - 1);
  const auto message = message_from_line(std::string_view(*line).substr(0, line->size() - 1));
  EXPECT_TRUE(message.ok());
  return std::get<T>(*message);
}

TEST(Protocol, MessagesComeBackAsTheyWere) {
  const Compiled compiled{{"FALLBACK", 7, {{14, -1}, {24, 3}}, 4096, "{\"k\":\n\"\\u0000\"}"},
                          91900};
  EXPECT_EQ(round_trip(compiled).step, compiled.step);
  EXPECT_EQ(round_trip(compiled).cudnn_version, 91900);
  EXPECT_EQ(round_trip(std::int64_t{92800}), 92800);
  const auto progress = round_trip(cudnn::Progress{"plan (engine 2)", 4});
  EXPECT_EQ(progress.stage, "plan (engine 2)");
  EXPECT_EQ(progress.node, 4);
  const Error error = round_trip(Error{ErrorCode::unsupported, "no", {"a", "b"}, "{}"});
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.to_text(), "no\n  note: a\n  note: b");
  EXPECT_EQ(error.payload, "{}");
}

TEST(Protocol, PlanThatIsNoTextIsAnError) {
  Compiled compiled;
  compiled.step.cudnn_plan = "\xff";
  const auto line = to_line(compiled);
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.error().code, ErrorCode::cudnn);
}

TEST(Protocol, WordsThatAreNoTextAreReplaced) {
  const auto line = to_line(Error{ErrorCode::cudnn, "\xff", {}, ""});
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(message_from_line(*line).ok());
}

TEST(Protocol, LinesThatAreNone) {
  for (const char* text :
       {"", "hello", "{}", "[1]", "{\"compiled\": {}}", "{\"version\": \"x\"}"}) {
    const auto message = message_from_line(text);
    ASSERT_FALSE(message.ok()) << text;
    EXPECT_EQ(message.error().code, ErrorCode::worker);
    EXPECT_THAT(message.error().message, HasSubstr(text));
  }
}

}  // namespace
}  // namespace attn::worker
