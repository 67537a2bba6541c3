// cuDNN, loaded at run time. Nothing is linked: programs that neither compile nor execute plans run
// without cuDNN, CUDA or a driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"

namespace attn::cudnn {

struct Api;  // entry points (runtime/cudnn/api.h); internal to runtime/cudnn

// A loaded cuDNN. Immutable and thread-safe; not unloaded while referenced.
class Library {
 public:
  // Loads libcudnn.so.9 and the libraries that it needs (NVRTC). Searches only `folder` if that is
  // not empty, else only $ATTN_CUDNN_DIR if that is set; else uses the copy that the process has
  // already loaded, or the newest of those found by the dynamic linker, in $CUDNN_HOME, in the
  // default CUDA prefixes and in the project's wheels. Rejects copies older than 9.19. Errors:
  // cudnn, listing every place tried and the linker's errors, or the copies that are too old.
  static Result<std::shared_ptr<const Library>> load(const std::string& folder = "");

  std::int64_t version() const;     // cudnnGetVersion(): 91900 for 9.19.0
  const std::string& path() const;  // path of the loaded file
  // The NVRTC that cuDNN will find; empty if there is none (plans load, but cannot be compiled).
  const std::string& nvrtc_path() const;
  const Api& api() const;

  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  Library();
  struct State;
  std::unique_ptr<State> state_;
};

// "9.19.0"
std::string version_text(std::int64_t version);

}  // namespace attn::cudnn
