#include "runtime/cache/folder.h"

#include <cstdlib>
#include <string_view>

namespace attn::cache {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

std::string default_folder() {
  if (const auto folder = variable("ATTN_CACHE_DIR"); !folder.empty()) return std::string(folder);
  if (const auto base = variable("XDG_CACHE_HOME"); base.starts_with('/')) {
    return std::string(base) + "/attnc";
  }
  if (const auto home = variable("HOME"); !home.empty()) {
    return std::string(home) + "/.cache/attnc";
  }
  return {};
}

}  // namespace attn::cache
