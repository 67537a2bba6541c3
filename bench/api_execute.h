// Executes a plan through attn.h, to measure the overhead of the C API.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/execute/arguments.h"

namespace attn::bench {

// Owns its runtime, executable and binding. Not thread-safe.
class ApiExecute {
 public:
  // `arguments` must be ones that Executable::bind accepts for the plan. Errors: those of attn.h.
  static Result<ApiExecute> create(const std::string& plan_path, int device,
                                   const std::string& cudnn_folder,
                                   const execute::Arguments& arguments);
  ApiExecute(ApiExecute&&) noexcept;
  ~ApiExecute();

  Status execute(void* stream);

 private:
  struct State;
  explicit ApiExecute(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::bench
