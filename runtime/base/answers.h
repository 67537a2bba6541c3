// Answers of the vendor's compilers (NVRTC, cuDNN), kept in a folder for whoever asks the same
// again: another process, or the same command an hour later. Off unless ATTN_ANSWERS_DIR names a
// folder.
//
// A question is a text that has all that an answer depends on, with the identities of the libraries
// that answer. It is kept beside the answer and compared, so a hash that two questions share does
// no harm. Any number of threads and processes may use a folder at once. Answers are code: a folder
// or file that belongs to another user than this one and root, or that others may write to, is an
// error.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn {

// Immutable and thread-safe.
class Answers {
 public:
  // In $ATTN_ANSWERS_DIR. If that is not set or empty, nothing is found or kept.
  Answers();
  explicit Answers(std::string folder) : folder_(std::move(folder)) {}

  bool is_kept() const { return !folder_.empty(); }
  // The answer; nullopt if there is none, or its file is damaged: keep() then replaces it. Errors:
  // io, if the folder or the file cannot be trusted or read.
  Result<std::optional<std::string>> find(std::string_view question) const;
  // Makes the folder, with its parents, if there is none. Errors: io.
  Status keep(std::string_view question, std::string_view answer) const;

 private:
  std::string path_of(std::string_view question) const;

  std::string folder_;
};

// Path, size and time of a file, which tell a library from the one that is installed there later.
// "PATH is missing" if there is none.
std::string identity_of(const std::string& path);

}  // namespace attn
