#include "runtime/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "runtime/cuda/failure.h"

#define ATTN_STRINGIZE_(text) #text
#define ATTN_STRINGIZE(text) ATTN_STRINGIZE_(text)

namespace attn::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

std::string unusable() { return to_payload({FailureKind::no_driver, 0}); }

Error missing_driver(const char* linker_words) {
  return Error{ErrorCode::cuda,
               "no CUDA driver on this machine",
               {fmt::format("{} could not be loaded: {}", kLibrary, linker_words)},
               unusable()};
}

template <typename Function>
Status look_up(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function != nullptr) return {};
  return Error{ErrorCode::cuda,
               fmt::format("the CUDA driver is too old: {} has no {}", kLibrary, symbol),
               {},
               unusable()};
}

// The library stays loaded until the process exits, since streams and contexts of other components
// also use it.
Result<Driver> load_driver() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return missing_driver(dlerror());
  Driver driver;
#define ATTN_CUDA_FUNCTION(member, function) \
  ATTN_RETURN_IF_ERROR(look_up(library, ATTN_STRINGIZE(function), driver.member));
#define ATTN_CUDA_OPTIONAL(member, function) \
  driver.member =                            \
      reinterpret_cast<decltype(driver.member)>(dlsym(library, ATTN_STRINGIZE(function)));
#include "runtime/cuda/driver.def"
#undef ATTN_CUDA_OPTIONAL
#undef ATTN_CUDA_FUNCTION
  ATTN_RETURN_IF_ERROR(driver.check(driver.init(0), "starting the CUDA driver"));
  return driver;
}

}  // namespace

Status Driver::check(CUresult result, std::string_view action) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* words = nullptr;
  get_error_name(result, &name);
  get_error_string(result, &words);
  const int code = static_cast<int>(result);
  return Error{ErrorCode::cuda,
               fmt::format("{}: {} ({})", action, name != nullptr ? name : "unknown CUDA error",
                           words != nullptr ? words : std::to_string(code)),
               {},
               to_payload(failure_for(code), name != nullptr ? name : "")};
}

Result<const Driver*> driver() {
  static std::mutex mutex;
  static std::optional<Driver> kept;
  static std::atomic<const Driver*> loaded{nullptr};  // points to `kept`, for lock-free reads
  if (const Driver* driver = loaded.load(std::memory_order_acquire)) return driver;
  const std::lock_guard lock(mutex);
  if (!kept) {
    ATTN_ASSIGN(kept, load_driver());
    loaded.store(&*kept, std::memory_order_release);
  }
  return &*kept;
}

}  // namespace attn::cuda
