#include "runtime/cudnn/find.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>

#include "runtime/base/python_sites.h"
#include "runtime/base/wheels.h"
#include "runtime/cudnn/library.h"

namespace attn::cudnn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libcudnn.so.9";

std::int64_t packed(int major, int minor, int patch) {
  return major * 10000 + minor * 100 + patch;  // since cuDNN 9.0
}

// Parses "9.14.0" at the start of a text.
std::optional<std::int64_t> parse_version(std::string_view text) {
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && !text.starts_with('.')) return std::nullopt;
    if (i > 0) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    if (error != std::errc() || numbers[i] < 0 || numbers[i] > 99) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return packed(numbers[0], numbers[1], numbers[2]);
}

// Reads "#define CUDNN_MAJOR 9" and so on.
std::optional<std::int64_t> version_in_header(const fs::path& header) {
  constexpr std::array<std::string_view, 3> kNames = {"CUDNN_MAJOR", "CUDNN_MINOR",
                                                      "CUDNN_PATCHLEVEL"};
  std::error_code ignored;
  if (!fs::is_regular_file(header, ignored)) return std::nullopt;
  std::ifstream file(header);
  std::array<int, 3> numbers{-1, -1, -1};
  for (std::string line; std::getline(file, line);) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const std::string start = fmt::format("#define {} ", kNames[i]);
      if (line.starts_with(start)) numbers[i] = std::atoi(line.c_str() + start.size());
    }
  }
  if (std::ranges::min(numbers) < 0) return std::nullopt;
  return packed(numbers[0], numbers[1], numbers[2]);
}

// A copy of cuDNN that could be loaded.
struct Copy {
  std::string path;
  std::optional<std::int64_t> version{};
};

std::string describe(const Copy& copy) {
  return fmt::format("{}: cuDNN {}", copy.path,
                     copy.version ? version_text(*copy.version) : "of unknown version");
}

bool is_too_old(const Copy& copy) { return copy.version && *copy.version < kOldestVersion; }

// Distinct copies in the order of the places; `failures` are the places without a copy.
class Copies {
 public:
  explicit Copies(const Places& places) {
    if (places.linker) add_linkers();
    for (const fs::path& folder : places.folders) add_folder(folder);
  }

  const std::vector<Copy>& all() const { return all_; }
  const std::vector<std::string>& failures() const { return failures_; }

  // The copies that are new enough, newest first, then those of unknown version.
  std::vector<Copy> by_preference() const {
    std::vector<Copy> copies;
    std::ranges::copy_if(all_, std::back_inserter(copies),
                         [](const Copy& copy) { return !is_too_old(copy); });
    std::ranges::stable_sort(copies, std::greater(),
                             [](const Copy& copy) { return copy.version.value_or(0); });
    return copies;
  }

 private:
  // Opens the linker's copy to learn its path; closing it leaves no trace, as nothing in it is
  // called.
  void add_linkers() {
    dlerror();
    void* handle = dlopen(kFile, RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      failures_.push_back(linker_words(kFile));
      return;
    }
    add(path_of(handle));
    dlclose(handle);
  }

  void add_folder(const fs::path& folder) {
    std::error_code ignored;
    bool any = false;
    for (const fs::path& path : inside(folder, kFile)) {
      if (!fs::exists(path, ignored)) continue;
      add(path.string());
      any = true;
    }
    if (!any) failures_.push_back(folder.string() + ": no " + kFile);
  }

  void add(const std::string& path) {
    std::error_code ignored;
    if (!seen_.insert(fs::weakly_canonical(path, ignored).string()).second) return;
    all_.push_back({path, version_beside(path)});
  }

  std::vector<Copy> all_;
  std::vector<std::string> failures_;
  std::set<std::string> seen_;
};

std::string oldest_text() {
  return fmt::format("attnc needs cuDNN {} or newer", version_text(kOldestVersion));
}

// `others` are other copies, listed in notes.
Error too_old(std::string message, const std::vector<Copy>& others, const std::string& path) {
  Error error{ErrorCode::cudnn, std::move(message), {oldest_text()}};
  for (const Copy& other : others) {
    if (other.path != path) error.notes.push_back("also found " + describe(other));
  }
  return error;
}

// Closes the handle if the copy is rejected.
Result<Found> ask_version(void* handle, const std::string& path, const std::vector<Copy>& all) {
  const auto ask = reinterpret_cast<std::size_t (*)()>(dlsym(handle, "cudnnGetVersion"));
  const Found found{handle, path, ask == nullptr ? 0 : static_cast<std::int64_t>(ask())};
  if (found.version >= kOldestVersion) return found;
  dlclose(handle);
  if (ask == nullptr) return {ErrorCode::cudnn, fmt::format("{} has no cudnnGetVersion", path)};
  return too_old(
      fmt::format("{} is cuDNN {}, which is too old", found.path, version_text(found.version)), all,
      found.path);
}

// Uses the loaded copy, whatever others exist.
Result<Found> take_loaded(void* handle, const Places& places) {
  const std::string path = path_of(handle);
  Result<Found> found = ask_version(handle, path, {});
  if (found.ok()) return found;
  Places elsewhere = places;
  elsewhere.linker = false;  // it would find the same copy
  Error error = too_old(found.error().message + ", and this process has already loaded it",
                        Copies(elsewhere).all(), path);
  error.notes.emplace_back("a second copy in one process would conflict; load a newer one first");
  return error;
}

}  // namespace

Places usual_places(const std::string& folder) {
  Places places{false, false, {}};
  if (!folder.empty()) places.folders.emplace_back(folder);
  if (folder.empty()) append_environment(places.folders, "ATTN_CUDNN_DIR");
  if (!places.folders.empty()) return places;
  places.loaded = places.linker = true;
  append_environment(places.folders, "CUDNN_HOME");
  places.folders.insert(places.folders.end(), {"/usr/local/cuda", "/opt/cuda", "/usr/local/cudnn"});
  for (const fs::path& site : python_sites()) places.folders.push_back(site / "nvidia" / "cudnn");
  append_wheel(places.folders, "cudnn");
  return places;
}

Result<Found> find_cudnn(const Places& places) {
  if (places.loaded) {
    void* handle = dlopen(kFile, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    if (handle != nullptr) return take_loaded(handle, places);
  }
  const Copies copies(places);
  LibrarySearch search{nullptr, "", copies.failures()};
  for (const Copy& copy : copies.by_preference()) {
    if (try_open(search, copy.path)) return ask_version(search.handle, search.path, copies.all());
  }
  for (const Copy& copy : copies.all()) {
    if (!is_too_old(copy)) continue;
    return too_old(
        fmt::format("{} is cuDNN {}, which is too old", copy.path, version_text(*copy.version)),
        copies.all(), copy.path);
  }
  return Error{ErrorCode::cudnn, fmt::format("{} was not found", kFile), std::move(search.failures),
               ""};
}

std::optional<std::int64_t> version_beside(const fs::path& library) {
  std::error_code error;
  const fs::path file = fs::canonical(library, error);
  if (error) return std::nullopt;
  constexpr std::string_view kStem = "libcudnn.so.";
  const std::string name = file.filename().string();
  if (name.starts_with(kStem)) {
    if (const auto version = parse_version(std::string_view(name).substr(kStem.size()))) {
      return version;
    }
  }
  return version_in_header(file.parent_path().parent_path() / "include" / "cudnn_version.h");
}

}  // namespace attn::cudnn
