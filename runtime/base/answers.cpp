#include "runtime/base/answers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "runtime/base/hash.h"
#include "runtime/base/regular_file.h"
#include "runtime/base/replace_file.h"

namespace attn {
namespace {

constexpr mode_t kFolderMode = 0700, kFileMode = 0600;
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

Error not_used(const std::string& path, const std::string& why) {
  return {ErrorCode::io,
          fmt::format("{}: {}", path, why),
          {"ATTN_ANSWERS_DIR names a folder of compilers' answers, which are code, so it and its "
           "files must belong to you or root, and others must not write to them",
           "set it to another folder, or unset it"}};
}

// Whether there is such a file. Errors: io, if it is not this user's alone.
Result<bool> exists(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    return not_used(path, errno_text("stat"));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return not_used(path, "it is owned by another user");
  if ((status.st_mode & kOthersMayWrite) != 0) return not_used(path, "other users may write to it");
  return true;
}

// Everything before the answer. The hash covers what follows it.
std::string head_of(std::string_view question, std::string_view answer) {
  const Hash128 parts[] = {hash128(question), hash128(answer)};
  return fmt::format("attnc answer 1 {} {} {}\n{}\n", parts[0].to_hex(), parts[1].to_hex(),
                     question.size(), question);
}

// The answer in the bytes of a file; nullopt if it is of another question, or damaged.
std::optional<std::string> answer_in(std::string bytes, std::string_view question) {
  const std::size_t size = head_of(question, "").size();
  if (bytes.size() < size) return std::nullopt;
  const std::string_view answer = std::string_view(bytes).substr(size);
  if (!bytes.starts_with(head_of(question, answer))) return std::nullopt;
  return bytes.substr(size);
}

std::string folder_of_environment() {
  const char* folder = std::getenv("ATTN_ANSWERS_DIR");
  return folder == nullptr ? "" : folder;
}

}  // namespace

Answers::Answers() : folder_(folder_of_environment()) {}

std::string Answers::path_of(std::string_view question) const {
  return fmt::format("{}/{}.answer", folder_, hash128(question).to_hex());
}

Result<std::optional<std::string>> Answers::find(std::string_view question) const {
  if (!is_kept()) return std::optional<std::string>();
  ATTN_ASSIGN(const bool has_folder, exists(folder_));
  const std::string path = path_of(question);
  bool has_file = false;
  if (has_folder) {
    ATTN_ASSIGN(has_file, exists(path));
  }
  if (!has_file) return std::optional<std::string>();
  ATTN_ASSIGN(std::string bytes,
              read_regular_file(path, std::numeric_limits<std::ptrdiff_t>::max()));
  return answer_in(std::move(bytes), question);
}

Status Answers::keep(std::string_view question, std::string_view answer) const {
  if (!is_kept()) return {};
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(folder_).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(folder_.c_str(), kFolderMode) != 0 && errno != EEXIST)
    return not_used(folder_, errno_text("mkdir"));
  ATTN_RETURN_IF_ERROR(exists(folder_).status());
  std::string bytes = head_of(question, answer);
  bytes += answer;
  return replace_file(path_of(question), bytes, kFileMode);
}

std::string identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path + " is missing";
  return fmt::format("{} {} {}.{}", path, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

}  // namespace attn
