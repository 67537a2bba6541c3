#include "runtime/worker/driver_image.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <string>
#include <string_view>

#include "runtime/base/descriptors.h"

// The bytes of the library, from the file that the build has just linked.
asm(".pushsection .rodata\n"
    ".global attn_nodriver_begin\n"
    ".hidden attn_nodriver_begin\n"
    ".global attn_nodriver_end\n"
    ".hidden attn_nodriver_end\n"
    ".balign 16\n"
    "attn_nodriver_begin:\n"
    ".incbin \"" ATTN_NODRIVER_FILE
    "\"\n"
    "attn_nodriver_end:\n"
    ".popsection\n");

extern "C" const char attn_nodriver_begin[];
extern "C" const char attn_nodriver_end[];

namespace attn::worker {
namespace {

constexpr const char* kDriver = "libcuda.so.1";

Status cannot_load(const std::string& what) {
  return Status(ErrorCode::worker, "cannot load the stub driver library: " + what);
}

std::string linker_words() {
  const char* words = dlerror();
  return words != nullptr ? words : "the dynamic linker gave no reason";
}

}  // namespace

Status load_nodriver() {
  if (dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD) != nullptr) {
    return cannot_load(fmt::format("another {} is already loaded in this process", kDriver));
  }
  const FileDescriptor file(memfd_create(kDriver, MFD_CLOEXEC));
  if (!file.valid()) return cannot_load(errno_text("memfd_create"));
  const std::string_view image(attn_nodriver_begin, attn_nodriver_end);
  if (!write_all(file.get(), image)) return cannot_load(errno_text("write"));
  // The library is never unloaded. Its mapping stays valid after the memory file is closed.
  if (dlopen(fmt::format("/proc/self/fd/{}", file.get()).c_str(), RTLD_NOW | RTLD_GLOBAL) ==
      nullptr) {
    return cannot_load(linker_words());
  }
  if (dlopen(kDriver, RTLD_NOW | RTLD_NOLOAD) == nullptr) return cannot_load(linker_words());
  return Status();
}

}  // namespace attn::worker
