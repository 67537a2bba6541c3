#include "tools/lsp/messages.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace attn::tools::lsp {
namespace {

// The bodies that are read from these bytes.
std::vector<std::string> bodies(const std::string& bytes) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t count =
          write(ends[1], bytes.data() + at, std::min<std::size_t>(7, bytes.size() - at));
      if (count <= 0) break;
      at += static_cast<std::size_t>(count);
    }
    close(ends[1]);
  });
  MessageReader reader(ends[0]);
  std::vector<std::string> found;
  while (auto body = reader.read()) found.push_back(std::move(*body));
  writer.join();
  close(ends[0]);
  return found;
}

using Bodies = std::vector<std::string>;

TEST(MessageReader, ReadsOneAfterTheOther) {
  EXPECT_EQ(bodies("Content-Length: 2\r\n\r\n{}content-length: 3\r\nContent-Type: x\r\n\r\n[1]"),
            (Bodies{"{}", "[1]"}));
}

TEST(MessageReader, SkipsBrokenHeaders) {
  EXPECT_EQ(bodies("\r\nhello\r\n\r\nContent-Length: x\r\n\r\nContent-Length: 2\n\n{}"),
            (Bodies{"{}"}));
  EXPECT_EQ(bodies(std::string(100'000, 'x') + "\r\nContent-Length: 1\r\n\r\n1"), (Bodies{"1"}));
}

TEST(MessageReader, EndsWithinAMessage) {
  EXPECT_EQ(bodies("Content-Length: 20\r\n\r\n{}"), Bodies{});
  EXPECT_EQ(bodies("Content-Length: 99999999999999999999\r\n\r\n{}"), Bodies{});
  EXPECT_EQ(bodies(""), Bodies{});
}

TEST(ParseMessage, LeavesOutWhatIsTooDeep) {
  for (const int depth : {1, 100, 1'000, 300'000}) {
    for (const auto& [open, close] : {std::pair("[", "]"), std::pair("{\"a\":", "}")}) {
      std::string deep, ends;
      for (int i = 0; i < depth; ++i) {
        deep += open;
        ends += close;
      }
      const Message message = parse_message("{\"id\":3,\"params\":" + deep + "1" + ends + "}");
      EXPECT_EQ(message.is_too_deep, depth > kMostNesting) << depth;
      EXPECT_EQ(message.json.at("id"), 3);
      EXPECT_EQ(message.json.dump().size() > 100, depth >= 100);
      EXPECT_TRUE(parse_message(deep).json.is_discarded()) << "not closed";
    }
  }
}

TEST(MessageWriter, KnowsWhenNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  MessageWriter writer(ends[1]);
  writer.respond(1, "\xFF");  // not UTF-8
  char text[200] = {};
  ASSERT_GT(read(ends[0], text, sizeof text - 1), 0);
  EXPECT_NE(std::string(text).find("\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"),
            std::string::npos);
  EXPECT_FALSE(writer.is_broken());
  close(ends[1]);
  writer.notify("x", nullptr);
  EXPECT_TRUE(writer.is_broken());
  close(ends[0]);
}

}  // namespace
}  // namespace attn::tools::lsp
