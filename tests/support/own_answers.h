// An ATTN_ANSWERS_DIR for a test (runtime/base/answers.h), instead of the one that all tests share.
#pragma once

#include <cstdlib>
#include <string>

namespace attn::testing {

// Sets the variable, for a folder or for none (""), until it is destroyed. Not thread-safe.
class OwnAnswers {
 public:
  explicit OwnAnswers(const std::string& folder) {
    if (const char* before = std::getenv(kName)) before_ = before;
    ::setenv(kName, folder.c_str(), 1);
  }
  ~OwnAnswers() { ::setenv(kName, before_.c_str(), 1); }
  OwnAnswers(const OwnAnswers&) = delete;
  OwnAnswers& operator=(const OwnAnswers&) = delete;

 private:
  static constexpr const char* kName = "ATTN_ANSWERS_DIR";
  std::string before_;
};

}  // namespace attn::testing
