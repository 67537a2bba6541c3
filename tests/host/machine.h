// Runs programs on the host: graphs with loops (graph.h), kernels with the host's compiler
// (kernels.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"
#include "runtime/plan/schedule_options.h"
#include "tests/host/gpu/tensor_map.h"
#include "tests/host/kernels.h"

namespace attn::host {

// The memory of a schedule that is made apart: plan::Schedule::tensor, options and parts.
using ScheduleMemory = std::map<std::string, std::vector<std::byte>>;

// Owns the memory of one program. It is initialized to NaN, to expose elements that are not
// written.
class Machine {
 public:
  // Program and kernels must outlive the machine.
  Machine(const plan::Program& program, const Kernels& kernels,
          gpu::Order order = gpu::Order::early_copies);

  // Memory of a tensor or an internal tensor. It may be assigned, but not resized.
  std::vector<std::byte>& memory(const std::string& name) { return memory_.at(name); }
  void set_param(const std::string& name, double value) { params_[name] = value; }
  // How many blocks of threads of attnc's own kernels run at once (gpu::Launch); 1 at first.
  void set_blocks_at_once(unsigned count) { at_once_ = count; }

  // Runs all steps in order. Errors: those of plan::validate and of run() in graph.h.
  Status run();

  // Memory for a schedule of the program's, which must have one: as large as the program's own,
  // and NaN but for the options.
  ScheduleMemory schedule_memory(const plan::ScheduleOptions& options) const;
  // The first launch alone of the step that has a schedule, into `schedule`. Errors: those of
  // run().
  Status make_schedule(ScheduleMemory& schedule);
  // As run(), but with a schedule that this machine or another one made, instead of that launch.
  Status run(ScheduleMemory& schedule);

 private:
  Status run(const plan::CudnnStep& step, std::int64_t turn);
  Status run(const plan::DeriveStep& step, std::int64_t turn);
  Status run(const plan::KernelStep& step, std::int64_t turn);
  Status run(const plan::KernelStep& step, const plan::Launch& launch, std::int64_t turn);
  void exchange(ScheduleMemory& schedule, const std::string& name);
  std::byte* address(const plan::TensorOperand& operand, std::int64_t turn);
  gpu::TensorMap map_of(const plan::TensorMapArgument& of, std::int64_t turn);
  void store_param(const std::string& name, std::byte* value) const;
  double param(const std::string& name) const { return params_.at(name); }

  const plan::Program& program_;
  const Kernels& kernels_;
  gpu::Order order_;
  unsigned at_once_ = 1;
  bool is_made_before_ = false;  // a schedule
  std::map<std::string, std::vector<std::byte>> memory_;
  std::map<std::string, const plan::TensorInfo*> infos_;
  std::map<std::string, double> params_;
};

}  // namespace attn::host
