// cuDNN, loaded at run time. Nothing here is linked: programs that never compile or execute a plan
// run without cuDNN, CUDA or a driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"

namespace attn::cudnn {

struct Api;  // the entry points (runtime/cudnn/api.h); only this room looks inside

// A loaded cuDNN. Immutable and safe to share between threads; never unloaded while referenced.
class Library {
 public:
  // Loads libcudnn.so.9 and the libraries it will look for (NVRTC). Looks in `folder` alone when it
  // is not empty, else in $ATTN_CUDNN_DIR alone when that is set; else takes the copy that the
  // process has loaded already, or the newest of those that the dynamic linker finds and that lie
  // in $CUDNN_HOME, the usual CUDA prefixes and the project's wheels. None older than 9.19 is
  // taken. Errors: cudnn, with every place tried and the linker's words, or the copies that are too
  // old.
  static Result<std::shared_ptr<const Library>> load(const std::string& folder = "");

  std::int64_t version() const;     // cudnnGetVersion(): 91900 for 9.19.0
  const std::string& path() const;  // file that was loaded
  // NVRTC that cuDNN will find; empty when there was none (plans load, but none can be compiled).
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
