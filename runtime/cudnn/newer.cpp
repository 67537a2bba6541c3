#include "runtime/cudnn/newer.h"

namespace attn::cudnn {
namespace {

struct Newer {
  std::string_view name;
  std::int64_t since;
};
constexpr Newer kNewer[] = {
#define ATTN_NEWER_ATTRIBUTE(name, number, since) {#name, since},
#define ATTN_NEWER_DESCRIPTOR(name, number, since) {#name, since},
#include "runtime/cudnn/newer.def"
#undef ATTN_NEWER_ATTRIBUTE
#undef ATTN_NEWER_DESCRIPTOR
};

}  // namespace

std::int64_t since(std::string_view name) {
  for (const Newer& newer : kNewer) {
    if (newer.name == name) return newer.since;
  }
  return 0;
}

}  // namespace attn::cudnn
