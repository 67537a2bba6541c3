#include "runtime/cudnn/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "runtime/base/wheels.h"
#include "runtime/cudnn/api.h"

namespace attn::cudnn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCudnnFile = "libcudnn.so.9";

// A library that could be opened, or the linker's words for each place that was tried.
struct Search {
  void* handle = nullptr;
  std::string path;
  std::vector<std::string> failures;
};

std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return map->l_name;
}

bool try_open(Search& search, const std::string& file) {
  dlerror();
  search.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (search.handle == nullptr) {
    const char* why = dlerror();
    search.failures.push_back(why != nullptr ? std::string(why) : file + ": cannot be opened");
    return false;
  }
  search.path = path_of(search.handle);
  return true;
}

// A folder may be the one that holds the libraries or a prefix above it.
std::vector<std::string> inside(const fs::path& folder, const std::string& file) {
  return {(folder / file).string(), (folder / "lib" / file).string(),
          (folder / "lib64" / file).string()};
}

Search open_in(const std::vector<fs::path>& folders, const std::string& file, bool linker_first) {
  Search search;
  if (linker_first && try_open(search, file)) return search;
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    for (const std::string& candidate : inside(folder, file)) {
      if (!fs::exists(candidate, ignored)) continue;
      if (try_open(search, candidate)) return search;
    }
    if (search.handle == nullptr) search.failures.push_back(folder.string() + ": no " + file);
  }
  return search;
}

void append_environment(std::vector<fs::path>& folders, const char* variable) {
  const char* value = std::getenv(variable);
  if (value != nullptr && *value != '\0') folders.emplace_back(value);
}

void append_wheel(std::vector<fs::path>& folders, const std::string& name) {
  if (!wheels_folder().empty()) folders.push_back(fs::path(wheels_folder()) / "nvidia" / name);
}

std::vector<fs::path> usual_cudnn_folders() {
  std::vector<fs::path> folders;
  append_environment(folders, "CUDNN_HOME");
  folders.insert(folders.end(), {"/usr/local/cuda", "/opt/cuda", "/usr/local/cudnn"});
  append_wheel(folders, "cudnn");
  return folders;
}

// Beside cuDNN, then where the vendor's wheels put it (<site>/nvidia/cu13/lib beside
// <site>/nvidia/cudnn/lib), then the usual prefixes.
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

// NVRTC opens its builtins by name and does not look beside itself; loaded before, they are found.
void load_builtins(const std::string& nvrtc_path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(nvrtc_path).parent_path(), ignored)) {
    if (!entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) continue;
    dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

// The name of the first entry point that is missing, or nothing.
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
  std::vector<fs::path> chosen;
  if (!folder.empty()) chosen.emplace_back(folder);
  if (folder.empty()) append_environment(chosen, "ATTN_CUDNN_DIR");
  Search cudnn = chosen.empty() ? open_in(usual_cudnn_folders(), kCudnnFile, true)
                                : open_in(chosen, kCudnnFile, false);
  if (cudnn.handle == nullptr) {
    return Error{ErrorCode::cudnn, fmt::format("{} was not found", kCudnnFile),
                 std::move(cudnn.failures), ""};
  }
  std::shared_ptr<Library> library(new Library());
  State& state = *library->state_;
  if (const auto missing = fill(state.api, cudnn.handle)) {
    return Result<std::shared_ptr<const Library>>(
        ErrorCode::cudnn, fmt::format("{} has no {}", cudnn.path, *missing));
  }
  state.path = cudnn.path;
  state.version = static_cast<std::int64_t>(state.api.cudnnGetVersion());
  const int cuda_major = static_cast<int>(state.api.cudnnGetCudartVersion() / 1000);
  const Search nvrtc = open_in(nvrtc_folders(state.path, cuda_major),
                               fmt::format("libnvrtc.so.{}", cuda_major), false);
  state.nvrtc_path = nvrtc.path;
  if (nvrtc.handle != nullptr) load_builtins(nvrtc.path);
  return std::shared_ptr<const Library>(std::move(library));
}

std::string version_text(std::int64_t version) {
  // 9.0 and later: major * 10000 + minor * 100 + patch.
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace attn::cudnn
