#include "runtime/ranks/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/libraries.h"
#include "runtime/base/python_sites.h"
#include "runtime/base/wheels.h"

namespace attn::ranks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libnccl.so.2";

std::vector<fs::path> usual_folders() {
  std::vector<fs::path> folders;
  append_environment(folders, "NCCL_HOME");
  folders.insert(folders.end(), {"/usr/local/cuda", "/opt/cuda", "/usr/local", "/usr/local/nccl"});
  for (const fs::path& site : python_sites()) folders.push_back(site / "nvidia" / "nccl");
  append_wheel(folders, "nccl");
  return folders;
}

// The linker's copy before those in folders: unlike cuDNN's, its interface does not change.
LibrarySearch find(const std::string& folder) {
  if (!folder.empty()) return open_in({folder}, kFile);
  if (void* loaded = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) return {loaded, path_of(loaded), {}};
  std::vector<fs::path> named;
  append_environment(named, "ATTN_NCCL_DIR");
  if (!named.empty()) return open_in(named, kFile);
  LibrarySearch linker;
  if (try_open(linker, kFile)) return linker;
  LibrarySearch search = open_in(usual_folders(), kFile);
  search.failures.insert(search.failures.begin(), linker.failures.begin(), linker.failures.end());
  return search;
}

// Fills the table; returns the name of the first missing function.
std::optional<std::string> fill(NcclApi& api, void* handle) {
#define ATTN_NCCL_OPTIONAL(member, function, returns, arguments) \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(handle, #function));
#define ATTN_NCCL_FUNCTION(member, function, returns, arguments) \
  ATTN_NCCL_OPTIONAL(member, function, returns, arguments)       \
  if (api.member == nullptr) return #function;
#include "runtime/ranks/nccl.def"
#undef ATTN_NCCL_FUNCTION
#undef ATTN_NCCL_OPTIONAL
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const Nccl>> Nccl::load(const std::string& folder) {
  LibrarySearch found = find(folder);
  if (found.handle == nullptr) {
    return Error{ErrorCode::nccl, fmt::format("{} was not found", kFile),
                 std::move(found.failures)};
  }
  std::shared_ptr<Nccl> nccl(new Nccl());
  nccl->path_ = found.path;
  const auto missing = fill(nccl->api_, found.handle);
  if (nccl->api_.get_version != nullptr) nccl->api_.get_version(&nccl->version_);
  const bool is_old = nccl->version_ != 0 && nccl->version_ < kOldestNccl;
  if (!missing && !is_old) return std::shared_ptr<const Nccl>(std::move(nccl));
  dlclose(found.handle);  // so that a later call may find a better one
  if (!is_old) return {ErrorCode::nccl, fmt::format("{} has no {}", found.path, *missing)};
  return Error{
      ErrorCode::nccl,
      fmt::format("{} is NCCL {}, which is too old", found.path, nccl_version_text(nccl->version_)),
      {fmt::format("attnc needs NCCL {} or newer", nccl_version_text(kOldestNccl))}};
}

Status Nccl::check(int result, std::string_view action) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return {};
  Error error{ErrorCode::nccl, fmt::format("NCCL: {}: {}", action, api_.get_error_string(result))};
  // It ignores the communicator, which may be aborted by now.
  const char* last = api_.get_last_error == nullptr ? nullptr : api_.get_last_error(nullptr);
  if (last != nullptr && *last != '\0') error.notes.emplace_back(last);
  return error;
}

std::string nccl_version_text(int version) {
  // NCCL 2.9 and later: major * 10000 + minor * 100 + patch; before: major * 1000 + ..
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

}  // namespace attn::ranks
