#include "runtime/cache/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/descriptors.h"
#include "runtime/plan/storage.h"

namespace attn::cache {
namespace {

constexpr uid_t kRoot = 0;
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

Error not_trusted(const std::string& path, const std::string& why, const char* help) {
  return {ErrorCode::io,
          fmt::format("{} is not used as a plan cache: {}", path, why),
          {"plans are code, so only files owned by you or root are used", help}};
}

Status check_owner(const struct stat& status, const std::string& path) {
  if (status.st_uid != ::geteuid() && status.st_uid != kRoot) {
    return not_trusted(path, fmt::format("it is owned by another user, {}", status.st_uid),
                       "set ATTN_CACHE_DIR to another folder");
  }
  if ((status.st_mode & kOthersMayWrite) != 0) {
    return not_trusted(path,
                       fmt::format("other users may write to it (mode {:o})",
                                   static_cast<unsigned>(status.st_mode & 07777)),
                       "remove that with `chmod go-w`; others may have written the existing plans");
  }
  return {};
}

Error cannot_open(const std::string& path) {
  return {ErrorCode::io, errno_text("cannot open " + path)};
}

// Opens the folder if it is owned by this user or root and nobody else may write to it. `path` may
// be a link; its target is checked. Errors: io, naming the owner or the mode.
Result<FileDescriptor> open_trusted_folder(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) return cannot_open(path);
  ATTN_RETURN_IF_ERROR(check_owner(status, path));
  return folder;
}

// The same for the regular file at `path`, which must not be a link; checks its folder too.
Result<FileDescriptor> open_trusted_file(const std::string& path) {
  const std::filesystem::path parts(path);
  const std::string parent = parts.has_parent_path() ? parts.parent_path().string() : ".";
  ATTN_ASSIGN(const FileDescriptor folder, open_trusted_folder(parent));
  FileDescriptor file(::openat(folder.get(), parts.filename().c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return cannot_open(path);
  if (!S_ISREG(status.st_mode)) return not_trusted(path, "it is not a regular file", "remove it");
  ATTN_RETURN_IF_ERROR(check_owner(status, path));
  return file;
}

namespace fs = std::filesystem;
using Clock = std::chrono::system_clock;

constexpr std::string_view kSuffix = ".attnplan";
constexpr std::string_view kTemporarySuffix = ".tmp";  // appended to the file name by plan::save
constexpr std::size_t kHashDigits = 32;
constexpr mode_t kFileMode = 0644;                     // before the umask
constexpr auto kTemporaryAge = std::chrono::hours(1);  // older ones have no writer

Error io_error(const std::string& what) { return {ErrorCode::io, errno_text(what)}; }

Error io_error(const std::string& doing, const std::string& path, const std::error_code& error) {
  return {ErrorCode::io, fmt::format("cannot {} {}: {}", doing, path, error.message())};
}

std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

struct Name {
  Hash128 hash;
  bool temporary = false;
};

// Parses the name of a cache file; nullopt for other files.
std::optional<Name> parse_name(std::string_view name) {
  const auto high = parse_hex(name.substr(0, kHashDigits / 2));
  if (!high || name.size() < kHashDigits) return std::nullopt;
  const auto low = parse_hex(name.substr(kHashDigits / 2, kHashDigits / 2));
  std::string_view rest = name.substr(kHashDigits);
  if (!low || !rest.starts_with(kSuffix)) return std::nullopt;
  rest.remove_prefix(kSuffix.size());
  const Hash128 hash{*high, *low};
  if (!name.starts_with(hash.to_hex())) return std::nullopt;  // rejects upper-case digits
  if (rest.empty()) return Name{hash, false};
  if (rest.starts_with('.') && rest.ends_with(kTemporarySuffix)) return Name{hash, true};
  return std::nullopt;
}

Clock::time_point time_of(const timespec& time) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

struct Files {
  std::vector<StoredFile> plans;
  std::vector<StoredFile> temporaries;
};

// Another process may remove any of the files at any time.
Result<Files> files_in(const std::string& folder) {
  Files files;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::optional<Name> name = parse_name(entry->path().filename().string());
    struct stat status {};
    if (!name || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    (name->temporary ? files.temporaries : files.plans)
        .push_back({name->hash, path, static_cast<std::uint64_t>(status.st_size),
                    time_of(status.st_mtim)});
  }
  if (error) return io_error("read", folder, error);
  return files;
}

Result<plan::Plan> read_plan(const std::string& path, const Hash128& hash) {
  ATTN_ASSIGN(const FileDescriptor file, open_trusted_file(path));
  ATTN_ASSIGN(plan::Bundle bundle, plan::load_bundle(file, path));
  plan::Plan& plan = bundle.plans.front();
  if (plan.signature.hash == hash) return std::move(plan);
  return Error{ErrorCode::plan_damaged, fmt::format("{}: the file holds another plan", path)};
}

// False if another process already removed it, or if removing it is not permitted.
bool unlink(const StoredFile& file) { return ::unlink(file.path.c_str()) == 0; }

Status make_folder(const std::string& folder) {
  std::error_code error;
  const fs::path parent = fs::path(folder).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (error) return io_error("create", parent.string(), error);
  if (::mkdir(folder.c_str(), 0700) == 0 || fs::is_directory(folder, error)) return {};
  return io_error("cannot create " + folder);
}

void sort_by_use(std::vector<StoredFile>& files) {
  std::ranges::sort(files, [](const StoredFile& x, const StoredFile& y) {
    return x.used != y.used ? x.used > y.used : x.hash < y.hash;
  });
}

}  // namespace

std::string FileStore::path_of(const Hash128& hash) const {
  return fmt::format("{}/{}{}", folder_, hash.to_hex(), kSuffix);
}

Result<std::optional<plan::Plan>> FileStore::load(const Key& key) const {
  const std::string path = path_of(key.hash());
  if (::access(path.c_str(), F_OK) != 0) return std::optional<plan::Plan>();
  Result<plan::Plan> plan = read_plan(path, key.hash());
  if (!plan.ok()) {
    if (::access(path.c_str(), F_OK) != 0) return std::optional<plan::Plan>();  // pruned meanwhile
    return plan.error();
  }
  if (plan->signature.text != key.text()) return std::optional<plan::Plan>();
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr,
                    0);  // fails harmlessly if the folder is read-only
  return std::optional<plan::Plan>(std::move(*plan));
}

Status FileStore::save(const plan::Plan& plan) const {
  ATTN_RETURN_IF_ERROR(make_folder(folder_));
  ATTN_RETURN_IF_ERROR(open_trusted_folder(folder_).status());
  ATTN_RETURN_IF_ERROR(plan::save(plan, path_of(plan.signature.hash), kFileMode));
  return prune().status();
}

Result<plan::Plan> FileStore::read(const StoredFile& file) {
  return read_plan(file.path, file.hash);
}

void FileStore::remove(const Hash128& hash) const { (void)::unlink(path_of(hash).c_str()); }

Result<std::vector<StoredFile>> FileStore::list() const {
  ATTN_ASSIGN(Files files, files_in(folder_));
  sort_by_use(files.plans);
  return std::move(files.plans);
}

Result<Pruned> FileStore::prune(const FileLimits& limits) const {
  ATTN_ASSIGN(Files files, files_in(folder_));
  sort_by_use(files.plans);
  const Clock::time_point now = Clock::now();
  Pruned pruned;
  std::uint64_t kept = 0;
  for (const StoredFile& file : files.plans) {
    const bool fits = kept + file.bytes <= limits.bytes;
    if (fits && now - file.used <= limits.age) {
      kept += file.bytes;
    } else if (unlink(file)) {
      ++pruned.files;
      pruned.bytes += file.bytes;
    }
  }
  for (const StoredFile& file : files.temporaries) {
    if (now - file.used > kTemporaryAge && unlink(file)) ++pruned.temporaries;
  }
  return pruned;
}

Result<Pruned> FileStore::clear() const {
  ATTN_ASSIGN(const Files files, files_in(folder_));
  Pruned pruned;
  for (const StoredFile& file : files.plans) {
    if (!unlink(file)) continue;
    ++pruned.files;
    pruned.bytes += file.bytes;
  }
  for (const StoredFile& file : files.temporaries) pruned.temporaries += unlink(file) ? 1 : 0;
  return pruned;
}

}  // namespace attn::cache
