#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/sized.h"

namespace attn::api {
namespace {

// The caller's log callback; log_release is called when the last sink that shares this is gone.
class Listener {
 public:
  explicit Listener(const attn_runtime_options& options)
      : callback_(options.log), user_(options.log_user), end_(options.log_release) {}
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() {
    if (end_ != nullptr) end_(user_);
  }

  void tell(log::Level level, std::string_view message) const {
    if (callback_ == nullptr) return;
    callback_(user_, static_cast<attn_log_level>(level), std::string(message).c_str());
  }

 private:
  attn_log_callback callback_;
  void* user_;
  void (*end_)(void* user);
};

static_assert(static_cast<attn_log_level>(log::Level::debug) == ATTN_LOG_DEBUG &&
              static_cast<attn_log_level>(log::Level::info) == ATTN_LOG_INFO &&
              static_cast<attn_log_level>(log::Level::warning) == ATTN_LOG_WARNING &&
              static_cast<attn_log_level>(log::Level::error) == ATTN_LOG_ERROR);

// The caller's allocator; allocator_release is called when no memory can come from it any more.
class Hooks {
 public:
  explicit Hooks(const attn_runtime_options& options)
      : allocate_(options.allocate_memory),
        free_(options.free_memory),
        user_(options.allocator_user),
        end_(options.allocator_release) {}
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  ~Hooks() {
    if (end_ != nullptr) end_(user_);
  }

  // Errors: invalid_argument if only one of the two is set.
  static Result<cuda::AllocatorPointer> allocator(const std::shared_ptr<Hooks>& hooks) {
    if ((hooks->allocate_ == nullptr) != (hooks->free_ == nullptr)) {
      return {ErrorCode::invalid_argument, "allocate_memory and free_memory must be set together"};
    }
    if (hooks->allocate_ == nullptr) return cuda::AllocatorPointer();
    auto allocator = std::make_shared<cuda::Allocator>();
    allocator->allocate = [hooks](std::size_t bytes, void* stream) {
      return hooks->allocate_(hooks->user_, bytes, stream);
    };
    allocator->free = [hooks](void* memory, std::size_t bytes, void* stream) {
      hooks->free_(hooks->user_, memory, bytes, stream);
    };
    return cuda::AllocatorPointer(std::move(allocator));
  }

 private:
  attn_allocate_callback allocate_;
  attn_free_callback free_;
  void* user_;
  void (*end_)(void* user);
};

// The callbacks whose release functions must be called even if the options are invalid.
struct Callbacks {
  explicit Callbacks(const attn_runtime_options& options)
      : listener(std::make_shared<Listener>(options)), hooks(std::make_shared<Hooks>(options)) {}
  std::shared_ptr<Listener> listener;
  std::shared_ptr<Hooks> hooks;
};

execute::RuntimeOptions runtime_options(const attn_runtime_options& options,
                                        const std::shared_ptr<Listener>& listener) {
  execute::RuntimeOptions result;
  result.device = options.device;
  if (options.cudnn_folder != nullptr) result.cudnn_folder = options.cudnn_folder;
  if (options.most_handles != 0) result.most_handles = options.most_handles;
  result.log = [listener](log::Level level, std::string_view message) {
    listener->tell(level, message);
  };
  return result;
}

cache::MemoryOptions cache_limits(const attn_runtime_options& options) {
  cache::MemoryOptions limits;
  if (options.cache_entries != 0) limits.values.entries = options.cache_entries;
  if (options.cache_bytes != 0) limits.values.bytes = options.cache_bytes;
  return limits;
}

execute::LoadOptions load_options(const attn_runtime_options& options) {
  execute::LoadOptions result;
  result.check_values = options.skip_value_checks == 0;
  return result;
}

Callbacks callbacks_of(const attn_runtime_options* options) {
  attn_runtime_options heard = {};
  if (options != nullptr && check_size(options->size).ok()) {
    std::memcpy(&heard, options, std::min(options->size, sizeof heard));
  }
  return Callbacks(heard);
}

Result<std::unique_ptr<attn_runtime>> open(const attn_runtime_options& options,
                                           const Callbacks& callbacks) {
  execute::RuntimeOptions opening = runtime_options(options, callbacks.listener);
  ATTN_ASSIGN(opening.allocator, Hooks::allocator(callbacks.hooks));
  ATTN_ASSIGN(auto opened, execute::Runtime::open(opening));
  return std::make_unique<attn_runtime>(std::move(opened), cache_limits(options),
                                        load_options(options));
}

attn_cache_counters counters_of(const cache::Counts& counts) {
  attn_cache_counters counters = {};
  counters.hit = counts[cache::Counter::hit];
  counters.miss = counts[cache::Counter::miss];
  counters.wait = counts[cache::Counter::wait];
  counters.negative = counts[cache::Counter::negative];
  counters.evict = counts[cache::Counter::evict];
  return counters;
}

}  // namespace

ATTN_API attn_status attn_runtime_open(const attn_runtime_options* options, attn_runtime** runtime,
                                       attn_error* error) {
  return guarded(error, [&]() -> Status {
    const Callbacks callbacks = callbacks_of(options);
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the output pointer for the runtime"}}));
    ATTN_ASSIGN(const attn_runtime_options read, read_sized(options));
    ATTN_ASSIGN(auto opened, open(read, callbacks));
    *runtime = opened.release();
    return {};
  });
}

ATTN_API void attn_runtime_retain(attn_runtime* runtime) {
  if (runtime != nullptr) runtime->retain();
}

ATTN_API void attn_runtime_release(attn_runtime* runtime) {
  if (runtime != nullptr) runtime->release();
}

ATTN_API attn_status attn_runtime_describe(const attn_runtime* runtime, attn_runtime_info* info,
                                           attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"}, {info, "the output pointer for the info"}}));
    const cuda::Device& device = runtime->runtime->device();
    const Result<execute::Runtime::Cudnn*> cudnn = runtime->runtime->cudnn();
    attn_runtime_info about = {};
    about.device_name = device.name().c_str();
    about.device = device.ordinal();
    about.sm = static_cast<std::int32_t>(device.sm());
    about.cudnn_library = "";
    if (cudnn.ok()) {
      about.cudnn_version = (*cudnn)->library->version();
      about.cudnn_library = (*cudnn)->library->path().c_str();
    } else {
      runtime->runtime->log(log::Level::warning, cudnn.error().message);
    }
    return write_sized(info, about);
  });
}

ATTN_API attn_status attn_runtime_cache_counters(attn_runtime* runtime, int32_t reset,
                                                 attn_cache_counters* counters, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"}, {counters, "the output pointer for the counters"}}));
    ATTN_RETURN_IF_ERROR(check_size(counters->size));
    execute::ExecutableCache& cache = runtime->executables;
    attn_cache_counters read = counters_of(reset != 0 ? cache.reset_counts() : cache.counts());
    read.entries = cache.size();
    read.bytes = cache.bytes();
    return write_sized(counters, read);
  });
}

ATTN_API attn_status attn_runtime_cache_clear(attn_runtime* runtime, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"}}));
    runtime->executables.clear();
    return {};
  });
}

}  // namespace attn::api
