// Programs on the host: graphs by loops (graph.h), kernels by the host's compiler (kernels.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"
#include "tests/host/kernels.h"

namespace attn::host {

// The memory of one program. All of it is NaN at first: what nobody writes shows.
class Machine {
 public:
  // Both must outlive it.
  Machine(const plan::Program& program, const Kernels& kernels);

  // Of a tensor of the program's, or an internal one; as long as it was when it is set.
  std::vector<std::byte>& memory(const std::string& name) { return memory_.at(name); }
  void set_param(const std::string& name, double value) { params_[name] = value; }

  // All steps in order. Errors: of a program or graph that is not valid; those of run() of a graph.
  Status run();

 private:
  Status run(const plan::CudnnStep& step, std::int64_t turn);
  Status run(const plan::DeriveStep& step, std::int64_t turn);
  std::byte* address(const plan::TensorOperand& operand, std::int64_t turn);
  double param(const std::string& name) const { return params_.at(name); }

  const plan::Program& program_;
  const Kernels& kernels_;
  std::map<std::string, std::vector<std::byte>> memory_;
  std::map<std::string, DType> dtypes_;
  std::map<std::string, double> params_;
};

}  // namespace attn::host
