#include "runtime/base/wheels.h"

namespace attn {

std::string_view wheels_folder() { return ATTN_WHEELS_FOLDER; }

void append_wheel(std::vector<std::filesystem::path>& folders, const std::string& name) {
  if (wheels_folder().empty()) return;
  folders.push_back(std::filesystem::path(wheels_folder()) / "nvidia" / name);
}

}  // namespace attn
