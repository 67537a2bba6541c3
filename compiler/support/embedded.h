// Text files that are part of the program (attn_embed in cmake/AttnTargets.cmake).
#pragma once

#include <span>
#include <string_view>

namespace attn::support {

struct EmbeddedFile {
  std::string_view name;  // without a folder
  std::string_view text;
};

// The text of the file with that name; empty if there is none.
inline std::string_view text_of(std::span<const EmbeddedFile> files, std::string_view name) {
  for (const EmbeddedFile& file : files) {
    if (file.name == name) return file.text;
  }
  return {};
}

}  // namespace attn::support
