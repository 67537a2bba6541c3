// Which cuDNN is taken: the one place that decides. Private to this room.
//
// 1. Of a given folder the copy in it.
// 2. Else the copy that the process has loaded already (PyTorch brings its own): two in one process
//    mix their parts, since both look for them by the same names.
// 3. Else of those where the dynamic linker and the usual places have one, the newest; of the same
//    version the first.
//
// None that is older than kOldestVersion is taken. A library cannot be asked for its version
// without loading parts that stay loaded, so the version of one that is not taken is read from what
// lies beside it: the name of the file (libcudnn.so.9.14.0), or include/cudnn_version.h. Copies of
// unknown version come after those of known ones, and are asked once they are loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace attn::cudnn {

inline constexpr std::int64_t kOldestVersion = 91900;

struct Places {
  bool loaded = true;                          // a copy that the process has loaded
  bool linker = true;                          // one that the dynamic linker finds by name
  std::vector<std::filesystem::path> folders;  // that hold the library, or prefixes above it
};

// $ATTN_CUDNN_DIR alone where it is set and `folder` is empty; `folder` alone where it is not; else
// the process, the linker, $CUDNN_HOME, the usual prefixes, the packages of the active Python
// (python_sites()) and the project's wheels.
Places usual_places(const std::string& folder);

struct Found {
  void* handle = nullptr;  // of dlopen, RTLD_GLOBAL
  std::string path;
  std::int64_t version = 0;  // cudnnGetVersion()
};

// Errors: cudnn, when there is none (with every place tried and the linker's words) or none that is
// new enough (with the path and version of each).
Result<Found> find_cudnn(const Places& places);

// Of a file that is not loaded; nothing when neither its name nor a header beside it says.
std::optional<std::int64_t> version_beside(const std::filesystem::path& library);

// What is left of looking for a library in folders, each that itself or a prefix above it.
struct Search {
  void* handle = nullptr;
  std::string path;
  std::vector<std::string> failures;  // the linker's words for each place that was tried
};
Search open_in(const std::vector<std::filesystem::path>& folders, const std::string& file);

void append_environment(std::vector<std::filesystem::path>& folders, const char* variable);
void append_wheel(std::vector<std::filesystem::path>& folders, const std::string& name);

}  // namespace attn::cudnn
