#include "runtime/io/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace attn::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> to_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// A version 1 file with this header and data.
std::vector<std::byte> file(std::string_view header, std::string_view data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(header.size() & 0xff));
  text.push_back(static_cast<char>(header.size() >> 8));
  return to_bytes(text.append(header).append(data));
}

constexpr std::string_view kHeader = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}";

std::string message_of(const std::vector<std::byte>& bytes) {
  Result<HostTensor> tensor = parse_npy(bytes);
  if (tensor.ok()) return "accepted";
  EXPECT_EQ(tensor.error().code, ErrorCode::io);
  return tensor.error().message;
}

std::string message_of_header(std::string_view header) { return message_of(file(header, "abcd")); }

TEST(Npy, ReadsAMinimalFile) {
  Result<HostTensor> tensor = parse_npy(file(kHeader, "\x01\x02\x03\x04"));
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->dtype, DType::u8);
  EXPECT_THAT(tensor->dims, ElementsAre(2, 2));
  EXPECT_THAT(tensor->values, ElementsAre(1, 2, 3, 4));
}

TEST(Npy, ReadsFortranOrder) {
  Result<HostTensor> tensor = parse_npy(
      file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", "\x01\x02\x03\x04\x05\x06"));
  ASSERT_TRUE(tensor.ok());
  EXPECT_THAT(tensor->values, ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(Npy, EveryDTypeRoundTrips) {
  for (DType type : {DType::f16, DType::f32, DType::f64, DType::i8, DType::u8, DType::i32,
                     DType::i64, DType::boolean}) {
    const HostTensor tensor{type, {2, 1, 2}, {0, 1, 1, 0}};
    Result<std::vector<std::byte>> bytes = format_npy(tensor);
    ASSERT_TRUE(bytes.ok());
    Result<HostTensor> back = parse_npy(*bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_text();
    EXPECT_EQ(back->dtype, type);
    EXPECT_EQ(back->dims, tensor.dims);
    EXPECT_EQ(back->values, tensor.values);
  }
}

TEST(Npy, DataOfWrittenFilesIsAligned) {
  Result<std::vector<std::byte>> bytes = format_npy({DType::f64, {3}, {1, 2, 3}});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((bytes->size() - 24) % 64, 0U);
}

TEST(Npy, ScalarsAndEmptyTensors) {
  EXPECT_THAT(parse_npy(*format_npy({DType::f32, {}, {2.5}}))->values, ElementsAre(2.5));
  Result<HostTensor> empty = parse_npy(*format_npy({DType::f32, {0, 3}, {}}));
  ASSERT_TRUE(empty.ok());
  EXPECT_THAT(empty->dims, ElementsAre(0, 3));
  EXPECT_TRUE(parse_npy(file("{'descr': '<f4', 'fortran_order': True, "
                             "'shape': (0, 4611686018427387904, 4611686018427387904)}",
                             ""))
                  .ok());
}

TEST(Npy, Bf16AndMisfitsAreNotWritten) {
  EXPECT_THAT(format_npy({DType::bf16, {1}, {1}}).error().message, HasSubstr("has no bf16"));
  EXPECT_FALSE(format_npy({DType::i8, {1}, {300}}).ok());
  EXPECT_FALSE(format_npy({DType::f32, {2}, {1}}).ok());
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::vector<std::byte> whole = *format_npy({DType::f32, {3}, {1, 2, 3}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(),
                                      whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(message_of(part), "accepted") << size;
  }
}

// Whatever one byte becomes, the file is either rejected or gives a consistent tensor.
TEST(Npy, EveryDamagedByteIsHandled) {
  const std::vector<std::byte> whole = *format_npy({DType::i32, {2, 3}, {1, 2, 3, 4, 5, 6}});
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int value : {0, 1, 9, 40, 57, 65, 127, 255}) {
      std::vector<std::byte> damaged = whole;
      damaged[at] = static_cast<std::byte>(value);
      const Result<HostTensor> tensor = parse_npy(damaged);
      if (!tensor.ok()) {
        EXPECT_EQ(tensor.error().code, ErrorCode::io);
        continue;
      }
      EXPECT_EQ(element_count(tensor->dims), static_cast<std::int64_t>(tensor->values.size()));
    }
  }
}

TEST(Npy, TrailingBytesAreRefused) {
  EXPECT_EQ(message_of(file(kHeader, "abcde")),
            "the file has 5 bytes of data, but (2, 2) elements of '|u1' need 4");
}

TEST(Npy, ForeignFilesAndVersionsAreRefused) {
  EXPECT_THAT(message_of(to_bytes("PK\x03\x04 something else")), HasSubstr("not a .npy file"));
  std::vector<std::byte> bytes = file(kHeader, "abcd");
  bytes[6] = std::byte{3};
  EXPECT_THAT(message_of(bytes), HasSubstr("version 3.0"));
}

TEST(Npy, ElementTypesThatAreNotReadAreNamed) {
  EXPECT_THAT(message_of_header("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}"),
              HasSubstr("big-endian"));
  EXPECT_THAT(message_of_header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"),
              HasSubstr("'<c8'"));
  EXPECT_THAT(message_of_header("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
              HasSubstr("records"));
}

TEST(Npy, DamagedHeadersAreRefused) {
  for (std::string_view header : {
           "",
           "{",
           "{}",
           "{'descr'",
           "{'descr: '|u1'}",
           "{'descr': '|u1', 'fortran_order': False}",
           "{'descr': '|u1', 'fortran_order': Maybe, 'shape': (4,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (4,}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (-4,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (2 2)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': 4}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)} more",
           "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (4,)}",
           "{'descr': '|u1' 'fortran_order': False, 'shape': (4,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), 'extra': 1}",
       }) {
    EXPECT_THAT(message_of_header(header), HasSubstr("cannot parse the .npy header")) << header;
  }
}

TEST(Npy, ShapesThatNoMemoryHoldsAreRefused) {
  EXPECT_THAT(message_of_header("{'descr': '<f8', 'fortran_order': False, "
                                "'shape': (4611686018427387904, 4611686018427387904)}"),
              HasSubstr("do not fit in memory"));
}

TEST(Npy, IntegersBeyondDoublesAreExact) {
  const std::vector<std::int64_t> elements = {(std::int64_t{1} << 53) + 1, -1, INT64_MIN, 7};
  const HostTensor tensor = tensor_of_wide({2, 2}, elements);
  const auto bytes = format_npy(tensor);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto read = parse_npy(*bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  for (std::size_t i = 0; i < elements.size(); ++i) EXPECT_EQ(read->integer(i), elements[i]);
  EXPECT_TRUE(tensor_of_wide({2}, {5, -(std::int64_t{1} << 53) + 1}).wide.empty());
}

TEST(Npy, IntegersBeyondDoublesKeepTheirPlacesInFortranOrder) {
  const std::string header = "{'descr': '<i8', 'fortran_order': True, 'shape': (1, 2)}";
  const std::string_view elements("\x01\0\0\0\0\0\x20\0\x02\0\0\0\0\0\x20\0", 16);
  const auto read = parse_npy(file(header, elements));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_THAT(read->wide, ElementsAre((std::int64_t{1} << 53) + 1, (std::int64_t{1} << 53) + 2));
}

TEST(Npy, FilesAndTheirErrors) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "attn_npy.npy").string();
  ASSERT_TRUE(write_npy(path, {DType::f32, {2}, {1.5, -2}}).ok());
  EXPECT_THAT(read_npy(path)->values, ElementsAre(1.5, -2));
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(read_npy(path).error().message, HasSubstr(path));
  EXPECT_EQ(read_npy("/no/such/file.npy").error().code, ErrorCode::io);
  EXPECT_THAT(read_npy("/dev/zero").error().message, HasSubstr("it is a device"));
  EXPECT_EQ(write_npy("/no/such/file.npy", {DType::f32, {1}, {1}}).error().code, ErrorCode::io);
  std::filesystem::remove(path);
}

// A sparse file larger than memory: reading its start is enough.
TEST(Npy, AForeignFileIsKnownByItsStart) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "attn_npy.bin").string();
  std::ofstream(path) << "no tensor";
  std::filesystem::resize_file(path, std::uintmax_t{1} << 42);
  EXPECT_THAT(read_npy(path).error().message, HasSubstr("not a .npy file"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace attn::io
