// Runtime: a device, its cuDNN, and a cache of executables. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "handle.hpp"
#include "runtime.h"

namespace attn {
inline namespace v2 {

// Levels of messages, the least important first.
enum class LogLevel : std::int32_t {
  debug = ATTN_LOG_DEBUG,
  info = ATTN_LOG_INFO,
  warning = ATTN_LOG_WARNING,
  error = ATTN_LOG_ERROR
};

// Receives messages; called on the thread where the event occurs, possibly several at once.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Application allocator for device memory; see attn_allocate_callback and attn_free_callback. Set
// both or neither. Must not throw.
struct Allocator {
  std::function<void*(std::size_t bytes, void* stream)> allocate = {};
  std::function<void(void* memory, std::size_t bytes, void* stream)> free = {};
};

// Options of Runtime::open; attn_runtime_options says more.
struct RuntimeOptions {
  int device = 0;
  std::string cudnn_folder = {};                     // empty: $ATTN_CUDNN_DIR or default paths
  int most_handles = 0;                              // 0: 16
  std::uint64_t cache_entries = 0, cache_bytes = 0;  // 0: 256 and 1 GiB
  bool check_values = true;
  LogSink log = {};          // must not throw
  Allocator allocator = {};  // empty: the driver allocates
};

// The device, and the cuDNN that is used: version 0 and no library if none can be loaded.
struct RuntimeInfo {
  std::string device_name;
  int device = 0;
  int sm = 0;
  std::int64_t cudnn_version = 0;
  std::string cudnn_library;
};

// A device, its cuDNN, and a cache of executables. Any number of threads may use it.
class Runtime {
 public:
  Runtime() = default;
  // Opens a device with its primary context. Errors: cuda; invalid_argument if only half of the
  // allocator is set.
  static Result<Runtime> open(const RuntimeOptions& options = {}) {
    attn_runtime_options plain = {};
    plain.size = sizeof plain;
    if (!options.cudnn_folder.empty()) plain.cudnn_folder = options.cudnn_folder.c_str();
    plain.device = options.device;
    plain.most_handles = options.most_handles;
    plain.cache_entries = options.cache_entries;
    plain.cache_bytes = options.cache_bytes;
    plain.skip_value_checks = options.check_values ? 0 : 1;
    if (options.log) {
      plain.log = call_sink;
      plain.log_user = new LogSink(options.log);
      plain.log_release = delete_sink;
    }
    if (options.allocator.allocate) plain.allocate_memory = call_allocate;
    if (options.allocator.free) plain.free_memory = call_free;
    if (plain.allocate_memory != nullptr || plain.free_memory != nullptr) {
      plain.allocator_user = new Allocator(options.allocator);
      plain.allocator_release = delete_allocator;
    }
    return detail::make<Runtime, attn_runtime>(attn_runtime_open, &plain);
  }

  // Loads cuDNN if no plan has done so.
  Result<RuntimeInfo> describe() const {
    attn_runtime_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_runtime_describe, handle(), &info));
    return RuntimeInfo{info.device_name, info.device, info.sm, info.cudnn_version,
                       info.cudnn_library};
  }

  // Counts of requests since the runtime was opened, or since they were reset.
  Result<attn_cache_counters> cache_counters() const { return counters(0); }
  // The same, and resets them to 0.
  Result<attn_cache_counters> reset_cache_counters() { return counters(1); }
  // Empties the cache; executables still held remain valid.
  Status clear_cache() { return detail::Caller()(attn_runtime_cache_clear, handle()); }

  attn_runtime* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Runtime(attn_runtime* handle) : handle_(handle) {}  // takes over the reference

 private:
  static void call_sink(void* sink, attn_log_level level, const char* message) {
    (*static_cast<LogSink*>(sink))(static_cast<LogLevel>(level), message);
  }
  static void delete_sink(void* sink) { delete static_cast<LogSink*>(sink); }
  static void* call_allocate(void* allocator, std::size_t bytes, void* stream) {
    return static_cast<Allocator*>(allocator)->allocate(bytes, stream);
  }
  static void call_free(void* allocator, void* memory, std::size_t bytes, void* stream) {
    static_cast<Allocator*>(allocator)->free(memory, bytes, stream);
  }
  static void delete_allocator(void* allocator) { delete static_cast<Allocator*>(allocator); }

  Result<attn_cache_counters> counters(std::int32_t reset) const {
    attn_cache_counters counters = {};
    counters.size = sizeof counters;
    ATTN_TRY(detail::Caller()(attn_runtime_cache_counters, handle(), reset, &counters));
    return counters;
  }

  detail::Shared<attn_runtime, attn_runtime_retain, attn_runtime_release> handle_;
};

}  // namespace v2
}  // namespace attn
