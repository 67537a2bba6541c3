// Defines what glibc 2.31 lacks, for programs and libraries that are linked with it
// (ATTN_OLDER_ROOT). On systems with a newer glibc its own functions are called.
#include <dirent.h>
#include <dlfcn.h>
#include <spawn.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace attn::older_glibc {

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Closes files that are open now. Those that another thread opens before the spawn, and not to be
// closed by it, stay open.
int add_closes(posix_spawn_file_actions_t* actions, int from) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return errno;
  int code = 0;
  while (const dirent* entry = code == 0 ? readdir(folder) : nullptr) {
    const int descriptor = std::atoi(entry->d_name);  // 0 for the folders "." and ".."
    if (descriptor >= from && descriptor != dirfd(folder)) {
      code = posix_spawn_file_actions_addclose(actions, descriptor);
    }
  }
  closedir(folder);
  return code;
}

}  // namespace attn::older_glibc

extern "C" {

using attn::older_glibc::find;

// libstdc++ reads it: false is right in every process.
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;

// libstdc++'s random_device calls it.
[[gnu::visibility("hidden")]] unsigned arc4random() noexcept {
  unsigned value = 0;
  if (getentropy(&value, sizeof value) != 0) std::abort();
  return value;
}

[[gnu::visibility("hidden")]] int posix_spawn_file_actions_addclosefrom_np(
    posix_spawn_file_actions_t* actions, int from) noexcept {
  auto* newer = find<int(posix_spawn_file_actions_t*, int)>(__func__);
  return newer != nullptr ? newer(actions, from) : attn::older_glibc::add_closes(actions, from);
}

[[gnu::visibility("hidden")]] const char* sigabbrev_np(int signal) noexcept {
  auto* newer = find<const char*(int)>(__func__);
  return newer != nullptr ? newer(signal) : nullptr;
}

}  // extern "C"
