#include "runtime/cudnn/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/base/libraries.h"
#include "runtime/base/wheels.h"
#include "runtime/cudnn/api.h"
#include "runtime/cudnn/find.h"

namespace attn::cudnn {
namespace {

namespace fs = std::filesystem;

// Next to cuDNN, then where NVIDIA's wheels have it (<site>/nvidia/cu13/lib next to
// <site>/nvidia/cudnn/lib), then the default prefixes.
std::vector<fs::path> nvrtc_folders(const fs::path& cudnn_file, int cuda_major) {
  const fs::path beside = cudnn_file.parent_path();
  const fs::path vendor = beside.parent_path().parent_path();
  std::vector<fs::path> folders = {beside, vendor / fmt::format("cu{}", cuda_major),
                                   vendor / "cuda_nvrtc"};
  append_environment(folders, "CUDA_HOME");
  folders.insert(folders.end(),
                 {"/usr/local/cuda", fmt::format("/usr/local/cuda-{}", cuda_major), "/opt/cuda"});
  append_wheel(folders, fmt::format("cu{}", cuda_major));
  return folders;
}

// NVRTC opens its builtins by name and does not search its own folder, so load them first.
void load_builtins(const std::string& nvrtc_path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(nvrtc_path).parent_path(), ignored)) {
    if (!entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) continue;
    dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

// Fills the table; returns the name of the first missing entry point.
std::optional<std::string> fill(Api& api, void* handle) {
#define ATTN_CUDNN_FUNCTION(name)                                        \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, #name)); \
  if (api.name == nullptr) return #name;
#include "runtime/cudnn/functions.def"
#undef ATTN_CUDNN_FUNCTION
  return std::nullopt;
}

}  // namespace

struct Library::State {
  Api api;
  std::string path;
  std::string nvrtc_path;
  std::int64_t version = 0;
};

Library::Library() : state_(std::make_unique<State>()) {}
Library::~Library() = default;

std::int64_t Library::version() const { return state_->version; }
const std::string& Library::path() const { return state_->path; }
const std::string& Library::nvrtc_path() const { return state_->nvrtc_path; }
const Api& Library::api() const { return state_->api; }

Result<std::shared_ptr<const Library>> Library::load(const std::string& folder) {
  ATTN_ASSIGN(const Found cudnn, find_cudnn(usual_places(folder)));
  std::shared_ptr<Library> library(new Library());
  State& state = *library->state_;
  if (const auto missing = fill(state.api, cudnn.handle)) {
    return Result<std::shared_ptr<const Library>>(
        ErrorCode::cudnn, fmt::format("{} has no {}", cudnn.path, *missing));
  }
  state.path = cudnn.path;
  state.version = cudnn.version;
  const int cuda_major = static_cast<int>(state.api.cudnnGetCudartVersion() / 1000);
  const LibrarySearch nvrtc =
      open_in(nvrtc_folders(state.path, cuda_major), fmt::format("libnvrtc.so.{}", cuda_major));
  state.nvrtc_path = nvrtc.path;
  if (nvrtc.handle != nullptr) load_builtins(nvrtc.path);
  return std::shared_ptr<const Library>(std::move(library));
}

std::string version_text(std::int64_t version) {
  // cuDNN 9.0 and later: major * 10000 + minor * 100 + patch.
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace attn::cudnn
