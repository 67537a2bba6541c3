// Chooses which cuDNN to load. Internal to runtime/cudnn.
//
// 1. If a folder is given, the copy in it.
// 2. Else the copy that the process has already loaded (PyTorch brings one): two copies in one
// process would mix their parts, since both look for them by the same names.
// 3. Else the newest of those found by the dynamic linker and in the default places; among equal
// versions the first.
//
// Copies older than kOldestVersion are rejected. A library reports its version only after loading
// parts that stay loaded. So the version of an unloaded copy is read from the file name
// (libcudnn.so.9.14.0) or from include/cudnn_version.h next to it. Copies of unknown version come
// last, and are asked once they are loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/libraries.h"
#include "runtime/base/status.h"

namespace attn::cudnn {

inline constexpr std::int64_t kOldestVersion = 91900;

struct Places {
  bool loaded = true;                          // use a copy that the process has loaded
  bool linker = true;                          // use a copy that the dynamic linker finds by name
  std::vector<std::filesystem::path> folders;  // folders with the library, or install prefixes
};

// Places to search: only `folder` if it is not empty; else only $ATTN_CUDNN_DIR if it is set; else
// the process, the linker, $CUDNN_HOME, the default prefixes, the packages of the active Python
// (python_sites()) and the project's wheels.
Places usual_places(const std::string& folder);

struct Found {
  void* handle = nullptr;  // from dlopen, RTLD_GLOBAL
  std::string path;
  std::int64_t version = 0;  // cudnnGetVersion()
};

// Errors: cudnn, if there is no copy (listing every place tried and the linker's errors) or none
// that is new enough (listing the path and version of each).
Result<Found> find_cudnn(const Places& places);

// Version of an unloaded file; nullopt if neither its name nor a header next to it tells.
std::optional<std::int64_t> version_beside(const std::filesystem::path& library);

}  // namespace attn::cudnn
