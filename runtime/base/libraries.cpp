#include "runtime/base/libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

namespace attn {

namespace fs = std::filesystem;

bool try_open(LibrarySearch& search, const std::string& file) {
  dlerror();
  search.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (search.handle == nullptr) {
    search.failures.push_back(linker_words(file));
    return false;
  }
  search.path = path_of(search.handle);
  return true;
}

LibrarySearch open_in(const std::vector<fs::path>& folders, const std::string& file) {
  LibrarySearch search;
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    bool any = false;
    for (const fs::path& candidate : inside(folder, file)) {
      if (!fs::exists(candidate, ignored)) continue;
      if (try_open(search, candidate.string())) return search;
      any = true;
    }
    if (!any) search.failures.push_back(folder.string() + ": no " + file);
  }
  return search;
}

std::array<fs::path, 3> inside(const fs::path& folder, const std::string& file) {
  return {folder / file, folder / "lib" / file, folder / "lib64" / file};
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return map->l_name;
}

std::string linker_words(const std::string& file) {
  const char* why = dlerror();
  return why != nullptr ? std::string(why) : file + ": cannot be opened";
}

void append_environment(std::vector<fs::path>& folders, const char* variable) {
  const char* value = std::getenv(variable);
  if (value != nullptr && *value != '\0') folders.emplace_back(value);
}

}  // namespace attn
