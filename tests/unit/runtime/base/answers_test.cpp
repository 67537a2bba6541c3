#include "runtime/base/answers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace attn::answers_tests {
namespace {

namespace fs = std::filesystem;

class AnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attn_answers_" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Answers answers() const { return Answers((folder_ / "new" / "answers").string()); }
  fs::path only_file() const { return fs::directory_iterator(folder_ / "new" / "answers")->path(); }

  fs::path folder_;
};

TEST_F(AnswersTest, AreFoundByTheirQuestion) {
  const Answers kept = answers();
  EXPECT_FALSE(kept.find("what?").value().has_value());
  const std::string bytes("a\0\n\xff", 4);
  ASSERT_TRUE(kept.keep("what?", bytes).ok());
  ASSERT_TRUE(kept.keep("what else?", "").ok());
  EXPECT_EQ(answers().find("what?").value(), bytes);
  EXPECT_EQ(answers().find("what else?").value(), "");
  EXPECT_FALSE(kept.find("what").value().has_value());
}

TEST_F(AnswersTest, NothingIsKeptWithoutAFolder) {
  const Answers none("");
  EXPECT_FALSE(none.is_kept());
  EXPECT_TRUE(none.keep("what?", "that").ok());
  EXPECT_FALSE(none.find("what?").value().has_value());
}

TEST_F(AnswersTest, OfAnotherQuestionOrDamagedAreNotFound) {
  ASSERT_TRUE(answers().keep("what?", "that").ok());
  const fs::path file = only_file();
  std::string text;
  std::getline(std::ifstream(file), text, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::ofstream(file) << damaged;
    EXPECT_FALSE(answers().find("what?").value().has_value()) << i;
    std::ofstream(file) << text.substr(0, i);
    EXPECT_FALSE(answers().find("what?").value().has_value()) << i;
  }
  ASSERT_TRUE(answers().keep("what?", "that").ok());
  EXPECT_EQ(answers().find("what?").value(), "that");
}

TEST_F(AnswersTest, OfOthersAreErrors) {
  ASSERT_TRUE(answers().keep("what?", "that").ok());
  ASSERT_EQ(chmod(only_file().c_str(), 0620), 0);
  EXPECT_EQ(answers().find("what?").error().code, ErrorCode::io);
  ASSERT_EQ(chmod(only_file().c_str(), 0600), 0);
  ASSERT_EQ(chmod((folder_ / "new" / "answers").c_str(), 0777), 0);
  EXPECT_EQ(answers().find("what?").error().code, ErrorCode::io);
  EXPECT_EQ(answers().keep("what?", "that").error().code, ErrorCode::io);
}

TEST_F(AnswersTest, FoldersThatCannotBeAreErrors) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "text";
  const Answers under((folder_ / "file" / "answers").string());
  EXPECT_EQ(under.find("what?").error().code, ErrorCode::io);
  EXPECT_EQ(under.keep("what?", "that").error().code, ErrorCode::io);
}

TEST_F(AnswersTest, IdentitiesChangeWithAFile) {
  fs::create_directories(folder_);
  const std::string file = (folder_ / "file").string();
  EXPECT_EQ(identity_of(file), file + " is missing");
  std::ofstream(file) << "text";
  const std::string before = identity_of(file);
  EXPECT_EQ(identity_of(file), before);
  std::ofstream(file) << "longer text";
  EXPECT_NE(identity_of(file), before);
}

}  // namespace
}  // namespace attn::answers_tests
