#include "compiler/support/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attn::support {
namespace {

TEST(Source, PlacesCountFromOne) {
  const Source source("x.attn", "ab\n\ncd");
  const auto at = [&](std::uint32_t offset) {
    const Place place = source.place(offset);
    return std::pair(place.line, place.column);
  };
  EXPECT_EQ(at(0), std::pair(1U, 1U));
  EXPECT_EQ(at(2), std::pair(1U, 3U));  // the line's end belongs to the line
  EXPECT_EQ(at(3), std::pair(2U, 1U));
  EXPECT_EQ(at(4), std::pair(3U, 1U));
  EXPECT_EQ(at(6), std::pair(3U, 3U));
  EXPECT_EQ(at(999), std::pair(3U, 3U));
}

TEST(Source, ColumnsCountCodePoints) {
  const Source source("x.attn", "\xC3\xA4\xE2\x89\xA5q\n\xF0\x9F\x99\x82z");
  EXPECT_EQ(source.place(5).column, 3U);  // q, after a two- and a three-byte character
  EXPECT_EQ(source.place(3).column, 2U);  // inside one
  EXPECT_EQ(source.place(11).column, 2U);
}

TEST(Source, BytesThatAreNotUtf8CountOneEach) {
  const Source source("x.attn", "\xFF\xC3\xE2\x89q");
  EXPECT_EQ(source.place(4).column, 5U);
}

TEST(Source, LinesComeWithoutTheirEnds) {
  const Source source("x.attn", "a\r\nb\n");
  EXPECT_EQ(source.line(1), "a");
  EXPECT_EQ(source.line(2), "b");
  EXPECT_EQ(source.line(3), "");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.line(99), "");
}

TEST(Source, TheTextTellsTheSurface) {
  for (const char* text : {"{}", "\n{", " \t\r\n {\"attention\": 1}", "\xEF\xBB\xBF\n{"}) {
    EXPECT_TRUE(Source("a.attn", text).is_json()) << text;
    EXPECT_TRUE(Source("<stdin>", text).is_json()) << text;
  }
  for (const char* text : {"", "\n", "# {", "attention f { }",
                           "\xEF\xBB\xBF"
                           "attention f { }"}) {
    EXPECT_FALSE(Source("a.attn", text).is_json()) << text;
  }
}

TEST(Source, TheNameTellsWhatWasMeant) {
  EXPECT_TRUE(Source("a.attn.json", "").is_json());
  EXPECT_FALSE(Source("a.attn", "").is_json());
  EXPECT_FALSE(Source("<stdin>", "").is_json());
}

TEST(Source, ReadsAFileByteForByte) {
  const auto path = std::filesystem::temp_directory_path() / "attn_source_test.attn";
  std::ofstream(path, std::ios::binary) << std::string("a\0\r\nb", 5);
  const auto source = Source::read(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->text(), std::string_view("a\0\r\nb", 5));
}

TEST(Source, AMissingFileIsAnIoError) {
  const auto source = Source::read("/nonexistent/x.attn");
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::io);
  EXPECT_NE(source.error().message.find("/nonexistent/x.attn"), std::string::npos);
}

// One without a writer would be waited for.
TEST(Source, FifosAndDevicesAreRefused) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("attn_fifo" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto fifo = Source::read(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(fifo.ok());
  EXPECT_NE(fifo.error().message.find("it is a FIFO"), std::string::npos);
  EXPECT_EQ(fifo.error().notes.front(), "use `-` as the file name to read standard input");
  EXPECT_FALSE(Source::read("/dev/zero").ok());
}

}  // namespace
}  // namespace attn::support
