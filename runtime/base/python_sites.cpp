#include "runtime/base/python_sites.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace attn {
namespace {

namespace fs = std::filesystem;

// Value of an environment variable; empty if unset.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// PREFIX of the first PREFIX/bin/python3 in $PATH. Links are not followed: in a virtual environment
// the packages are next to the link.
fs::path prefix_in_path() {
  const std::string path = variable("PATH");
  std::string_view rest = path;
  while (!rest.empty()) {
    const fs::path folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), folder.native().size() + 1));
    std::error_code ignored;
    if (folder.is_absolute() && fs::exists(folder / "python3", ignored)) {
      return folder.parent_path();
    }
  }
  return {};
}

void append_sites(std::vector<fs::path>& sites, const fs::path& prefix) {
  if (!prefix.is_absolute()) return;
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const char* library : {"lib", "local/lib"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / library, ignored)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* name : {"site-packages", "dist-packages"}) {
        if (fs::is_directory(entry.path() / name, ignored)) found.push_back(entry.path() / name);
      }
    }
  }
  std::ranges::sort(found);  // directory order is unspecified
  for (fs::path& site : found) {
    if (std::ranges::find(sites, site) == sites.end()) sites.push_back(std::move(site));
  }
}

}  // namespace

std::vector<fs::path> python_sites() {
  std::vector<fs::path> sites;
  append_sites(sites, variable("VIRTUAL_ENV"));
  append_sites(sites, variable("CONDA_PREFIX"));
  append_sites(sites, prefix_in_path());
  return sites;
}

}  // namespace attn
