// Reads files that NumPy wrote, and lets NumPy read files of this library. Uses the system's
// interpreter with the package python3-numpy; fails if it is missing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/io/npy.h"

namespace attn::io {
namespace {

constexpr const char* kScript = ATTN_SOURCE_DIR "/tests/unit/runtime/io/numpy_files.py";

int run_script(const std::string& command, const std::string& folder) {
  return std::system(fmt::format("/usr/bin/python3 {} {} '{}'", kScript, command, folder).c_str());
}

class Numpy : public ::testing::Test {
 protected:
  Numpy()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                fmt::format("attn_numpy_{}",
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~Numpy() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / (name + ".npy")).string(); }

  std::filesystem::path folder_;
};

// The script fills element i (row-major) of every file with (i * 7) % 120 - 20, as near as the type
// can hold it.
double expected(DType type, std::size_t index) {
  const double value = static_cast<double>(index * 7 % 120) - 20;
  if (type == DType::boolean) return value != 0 ? 1 : 0;
  return type == DType::u8 ? value + 20 : value;
}

TEST_F(Numpy, FilesOfEveryTypeOrderAndVersionAreRead) {
  ASSERT_EQ(run_script("write", folder_.string()), 0) << "python3-numpy is needed";
  const std::pair<const char*, DType> types[] = {
      {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64},
      {"i1", DType::i8},  {"u1", DType::u8},  {"i2", DType::i32},
      {"i4", DType::i32}, {"i8", DType::i64}, {"b1", DType::boolean}};
  const std::vector<std::int64_t> shapes[] = {{}, {5}, {2, 3, 4}, {3, 1, 2, 2}};
  for (const auto& [code, dtype] : types) {
    for (std::size_t rank = 0; rank < std::size(shapes); ++rank) {
      for (const char* form : {"c1", "f1", "c2"}) {
        Result<HostTensor> tensor = read_npy(path(fmt::format("{}_{}_{}", code, rank, form)));
        ASSERT_TRUE(tensor.ok()) << tensor.error().to_text();
        EXPECT_EQ(tensor->dtype, dtype);
        EXPECT_EQ(tensor->dims, shapes[rank]);
        for (std::size_t i = 0; i < tensor->values.size(); ++i) {
          ASSERT_EQ(tensor->values[i], expected(dtype, i)) << code << " " << form << " at " << i;
        }
      }
    }
  }
}

TEST_F(Numpy, NumpyReadsWhatIsWritten) {
  for (DType type : {DType::f16, DType::f32, DType::f64, DType::i8, DType::u8, DType::i32,
                     DType::i64, DType::boolean}) {
    HostTensor tensor{type, {2, 3, 4}, {}};
    for (std::size_t i = 0; i < 24; ++i) tensor.values.push_back(expected(type, i));
    ASSERT_TRUE(write_npy(path(std::string(to_string(type))), tensor).ok());
  }
  EXPECT_EQ(run_script("check", folder_.string()), 0);
}

}  // namespace
}  // namespace attn::io
