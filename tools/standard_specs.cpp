#include "tools/standard_specs.h"

#include <algorithm>
#include <filesystem>

namespace attn::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".attn";

// Folders of specs, from the program's: in an installation; in the Python package and a build in
// the source tree.
constexpr const char* kFolders[] = {ATTN_SPECS_FROM_PROGRAM, "../specs"};

std::optional<fs::path> folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  for (const char* each : kFolders) {
    const fs::path found = (program.parent_path() / each).lexically_normal();
    if (fs::is_regular_file(found / "causal.attn", error)) return found;
  }
  return std::nullopt;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_name(const std::string& text) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, is_part);
}

std::string without_suffix(const std::string& name) {
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

}  // namespace

std::vector<std::string> standard_spec_names() {
  std::vector<std::string> names;
  const std::optional<fs::path> from = folder();
  std::error_code error;
  if (!from) return names;
  for (fs::directory_iterator entry(*from, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == kSuffix) names.push_back(path.stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> standard_spec(const std::string& name) {
  const std::string stem = without_suffix(name);
  if (!is_name(stem)) return std::nullopt;
  const std::optional<fs::path> from = folder();
  if (!from) return std::nullopt;
  const fs::path file = *from / (stem + std::string(kSuffix));
  if (!is_there(file)) return std::nullopt;
  return file.string();
}

std::string resolved_spec(const std::string& path) {
  if (is_there(path) || !is_name(without_suffix(path))) return path;
  if (!path.ends_with(kSuffix) && is_there(path + std::string(kSuffix)))
    return path + std::string(kSuffix);
  return standard_spec(path).value_or(path);
}

}  // namespace attn::tools
