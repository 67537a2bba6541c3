#include "compiler/engines/native/forward_program.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "compiler/engines/native/caches.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/quantized.h"
#include "compiler/engines/native/schedules.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/ir/cache_scales.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines::native {
namespace {

constexpr const char* kCounter = "native.counter";

class ForwardProgram {
 public:
  ForwardProgram(const ir::Attention& whole, const ir::Attention& attention, const Kernel& kernel,
                 const target::Context& context)
      : whole_(whole),
        attention_(attention),
        dims_(attention.dims),
        kernel_(kernel),
        context_(context) {}

  plan::Program program() const {
    std::set<std::string> used = {"q", "k", "v"};
    for (const plan::OperandSource& input : kernel_.expressions.inputs.operands) {
      used.insert(name_in_program(*plan::name_of(input)));
    }
    const Controls control = controls(kernel_.chosen ? whole_ : attention_, used);
    plan::Program program;
    program.tensors = bound_tensors(whole_, used, control);
    program.internals = control.internals;
    if (kernel_.has_counter()) {
      program.internals.push_back(
          plan::internal_tensor(kCounter, DType::i32, {kernel_.counters(dims_)}));
    }
    program.params = bound_params(whole_, used);
    plan::KernelStep step{.outputs = kernel_.outputs,
                          .zeroed = kernel_.has_counter() ? std::vector<std::string>{kCounter}
                                                          : std::vector<std::string>(),
                          .launches = {},
                          .source = source_of(attention_, kernel_),
                          .facts = facts_of(attention_, kernel_)};
    if (kernel_.parts > 1) {
      program.internals.push_back(
          plan::internal_tensor(kParts, DType::f32, {kernel_.part_elements(dims_)}));
      step.outputs.emplace_back(kParts);
    }
    if (kernel_.is_scheduled()) {
      add_schedule(schedule_sizes(dims_, kernel_), kernel_, inputs(), program, step);
    }
    if (kernel_.makes_lists) {
      add_lists(kernel_.made_lists(dims_), kernel_.tiles_of_block, kCounter, inputs(), program,
                step);
    }
    // The last one before, which the forward waits for.
    if (is_copied_before(attention_, kernel_.tile))
      add_transposed_values(attention_, inputs(), program, step);
    else if (attention_.quantize)
      add_zeroed_magnitudes(attention_, step);
    step.facts->launch = static_cast<std::int64_t>(step.launches.size());
    step.launches.push_back(forward());
    if (kernel_.chosen) rename_tensors(*kernel_.chosen, step);
    for (const plan::DeriveStep& each : control.steps) program.steps.emplace_back(each);
    program.steps.emplace_back(std::move(step));
    return program;
  }

 private:
  // What the program calls a tensor of the kernel's attention.
  std::string name_in_program(const std::string& name) const {
    if (!kernel_.chosen) return name;
    const auto found = kernel_.chosen->names.find(name);
    return found == kernel_.chosen->names.end() ? name : found->second;
  }

  std::vector<plan::KernelArgument> inputs() const {
    return arguments_of(kernel_.expressions.inputs);
  }

  plan::Launch forward() const {
    const auto multiprocessors = static_cast<std::int64_t>(context_.gpu.multiprocessors);
    const std::int64_t items = kernel_.items(dims_) * kernel_.parts;
    const std::int64_t blocks = kernel_.is_scheduled() ? kernel_.workers
                                : kernel_.tile.walks
                                    ? std::min(multiprocessors * kernel_.tile.resident, items)
                                : kernel_.tile.of_warps ? items
                                                        : std::min(multiprocessors, items);
    std::vector<plan::KernelArgument> arguments;
    for (const char* name : {"q", "k", "v"}) {
      const bool is_of_keys = attention_.values_of_keys && name == std::string_view("v");
      if (is_of_keys && kernel_.tile.values_of_keys) continue;
      if (reads_rows(kernel_, attention_, name))
        arguments.emplace_back(plan::TensorOperand{is_of_keys ? "k" : name});
      else
        arguments.emplace_back(map_of(attention_, kernel_, name));
    }
    if (kernel_.tile.token_scales) {
      arguments.emplace_back(plan::TensorOperand{std::string(ir::kKeyScale)});
      arguments.emplace_back(plan::TensorOperand{std::string(ir::kValueScale)});
    }
    if (kernel_.expressions.table && kernel_.tile.walks) {
      arguments.emplace_back(plan::TensorOperand{kernel_.expressions.table->tensor});
    } else if (kernel_.expressions.table) {
      arguments.emplace_back(map_of(*kernel_.expressions.table, kernel_.tile));
    }
    for (const std::string& output : kernel_.outputs) {
      arguments.emplace_back(plan::TensorOperand{output});
    }
    if (kernel_.has_counter()) arguments.emplace_back(plan::TensorOperand{kCounter});
    for (std::string& table : page_tables(attention_, kernel_)) {
      arguments.emplace_back(plan::TensorOperand{std::move(table)});
    }
    for (std::string& starts : starts_of_packed(attention_)) {
      arguments.emplace_back(plan::TensorOperand{std::move(starts)});
    }
    for (BoundStride& stride : bound_strides(attention_, kernel_)) {
      arguments.emplace_back(std::move(stride.of));
    }
    if (kernel_.is_scheduled()) arguments.emplace_back(plan::TensorOperand{kSchedule});
    if (kernel_.has_parts()) arguments.emplace_back(plan::TensorOperand{kParts});
    if (kernel_.makes_lists) {
      arguments.emplace_back(plan::TensorOperand{kSortedTiles});
      arguments.emplace_back(plan::TensorOperand{kRunsOfTiles});
    }
    std::ranges::copy(inputs(), std::back_inserter(arguments));
    return {.kernel = kForwardKernel,
            .grid = {blocks, 1, 1},
            .block = {kernel_.tile.threads(), 1, 1},
            .shared_bytes = kernel_.tile.shared_bytes(),
            .overlaps = kernel_.overlaps(attention_),
            .arguments = std::move(arguments)};
  }

  const ir::Attention& whole_;      // whose tensors are bound
  const ir::Attention& attention_;  // that the kernel computes
  const ir::Dims& dims_;
  const Kernel& kernel_;
  const target::Context& context_;
};

}  // namespace

plan::Program forward_program(const ir::Attention& whole, const ir::Attention& attention,
                              const Kernel& kernel, const target::Context& context) {
  return ForwardProgram(whole, attention, kernel, context).program();
}

}  // namespace attn::engines::native
