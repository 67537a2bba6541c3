// A runtime on the stand-ins, and tensors for executing plans of make_plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "tests/standin/plans.h"

namespace attn::standin {

// Opens a runtime on the stand-ins. Errors: those of Runtime::open.
Result<std::shared_ptr<execute::Runtime>> open_runtime(int device = 0, int most_handles = 16);

// Device memory for a plan, with inputs that depend on a seed, and the expected outputs. Not
// thread-safe.
class Case {
 public:
  // Errors: cuda.
  static Result<Case> make(const cuda::Device& device, const plan::Plan& plan, int seed = 0);

  // Includes the params.
  execute::Arguments arguments() const;
  std::vector<void*> addresses() const;  // in the order of the program's tensors

  // Updates the expected outputs, for executes after the binding's set_param.
  void set_param(const std::string& name, double value);

  Status poison();
  // Whether the outputs are right. Errors: cuda.
  Result<bool> is_right() const;

 private:
  Case(const plan::Plan& plan, execute::DeviceTensors tensors);
  Status fill(int seed);

  plan::Plan plan_;
  execute::DeviceTensors tensors_;
  Bytes inputs_;
  Params params_;
  Bytes expected_;
};

}  // namespace attn::standin
