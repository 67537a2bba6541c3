#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "compiler/engines/native/backward_kernel.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/native/unpaged.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// The launches beside that of the products: sums, lists, the largest parts.
class BackwardLaunches {
 public:
  explicit BackwardLaunches(const BackwardKernel& kernel) : kernel_(kernel) {}

 protected:
  // Makes dq of its sums, and adds those of parts of blocks of keys.
  plan::Launch ending() const {
    std::vector<plan::KernelArgument> arguments;
    std::int64_t blocks = kernel_.mergers();
    const bool converts = kernel_.wants("dq");
    if (converts) {
      arguments = {plan::TensorOperand{BackwardKernel::kSums}, plan::TensorOperand{"dq"}};
      add_amax(arguments, "amax_dq");
      add_starts(arguments, kernel_.has_row_starts(), kRowStarts);
      blocks += kernel_.heads() * ceil_div(kernel_.dims[Dim::Sq], kConvertedRows);
    }
    if (kernel_.divides()) add_merged(arguments);
    add_inputs(arguments);
    return {.kernel = converts ? kConvertKernel : kMergeKernel,
            .grid = {blocks, 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = converts ? kConvertedRows * (kernel_.depth() + 1) * 4 : 0,
            .arguments = std::move(arguments)};
  }

  void add_merged(std::vector<plan::KernelArgument>& arguments) const {
    arguments.emplace_back(plan::TensorOperand{BackwardKernel::kKeySums});
    add_starts(arguments, kernel_.has_column_starts(), kColumnStarts);
    for (const char* gradient : {"dk", "dv"}) {
      if (!kernel_.wants(gradient)) continue;
      arguments.emplace_back(plan::TensorOperand{gradient});
      add_amax(arguments, fmt::format("amax_{}", gradient));
    }
    if (!kernel_.made_lists) return;
    arguments.emplace_back(plan::TensorOperand{kSortedTiles});
    arguments.emplace_back(plan::TensorOperand{BackwardKernel::kCounter});
  }

  // The output of an 8-bit attention.
  void add_amax(std::vector<plan::KernelArgument>& arguments, std::string name) const {
    if (kernel_.rows) arguments.emplace_back(plan::TensorOperand{std::move(name)});
  }

  // Widens rows of 8 bits, and makes exponents and deltas.
  plan::Launch widening() const {
    using Tensor = plan::TensorOperand;
    const ir::Dims& d = kernel_.dims;
    std::vector<plan::KernelArgument> arguments = {Tensor{"q"},  Tensor{"k"}, Tensor{"v"},
                                                   Tensor{"do"}, Tensor{"o"}, Tensor{"lse"}};
    for (const char* name : kWidened) arguments.emplace_back(wide_rows(kernel_.attention, name));
    arguments.insert(arguments.end(),
                     {Tensor{BackwardKernel::kExponents}, Tensor{BackwardKernel::kDeltas}});
    for (const char* name : kAmaxOfGradients) add_amax(arguments, name);
    add_starts(arguments, kernel_.has_row_starts(), kRowStarts);
    add_starts(arguments, kernel_.has_column_starts(), kColumnStarts);
    add_inputs(arguments);
    const std::int64_t rows =
        kernel_.heads() * kernel_.padded_rows() + d[Dim::B] * d[Dim::Hkv] * d[Dim::Skv];
    return {.kernel = kPrepareKernel,
            .grid = {ceil_div(rows * kThreadsOfRow, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }

  // Makes exponents and deltas.
  plan::Launch preparing() const {
    if (kernel_.rows) return widening();
    using Tensor = plan::TensorOperand;
    const std::int64_t threads = kernel_.heads() * kernel_.padded_rows() * kThreadsOfRow;
    std::vector<plan::KernelArgument> arguments;
    if (!kernel_.attention.is_pointwise()) arguments = {Tensor{"o"}, Tensor{"do"}, Tensor{"lse"}};
    if (kernel_.whole.reads_d_lse) {
      arguments.emplace_back(Tensor{kLseCotangent});
      if (kernel_.shares()) arguments.emplace_back(Tensor{BackwardKernel::kWords});
    }
    arguments.insert(arguments.end(),
                     {Tensor{BackwardKernel::kExponents}, Tensor{BackwardKernel::kDeltas}});
    add_starts(arguments, kernel_.has_row_starts(), kRowStarts);
    add_inputs(arguments);
    return {.kernel = kPrepareKernel,
            .grid = {ceil_div(threads, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }

  plan::Launch finding_largest() const {
    using Tensor = plan::TensorOperand;
    const std::int64_t rows = kernel_.heads() * kernel_.dims[Dim::Sq] + kernel_.dims[Dim::B] *
                                                                            kernel_.dims[Dim::Hkv] *
                                                                            kernel_.dims[Dim::Skv];
    std::vector<plan::KernelArgument> arguments;
    for (const char* name : {"do", "v"})
      arguments.emplace_back(kernel_.rows ? wide_rows(kernel_.attention, name) : Tensor{name});
    arguments.emplace_back(Tensor{BackwardKernel::kWords});
    add_starts(arguments, kernel_.has_row_starts(), kRowStarts);
    add_starts(arguments, kernel_.has_column_starts(), kColumnStarts);
    add_inputs(arguments);
    return {.kernel = kLargestKernel,
            .grid = {ceil_div(rows * kThreadsOfRow, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }

  // What makes the gradient of sums: a block of threads for each element that heads share, or a
  // thread for each that words count.
  plan::Launch sum_of(const gradient::TensorGradient& tensor) const {
    using Tensor = plan::TensorOperand;
    const Tensor gradient{gradient::gradient_name(tensor.tensor)};
    const std::int64_t elements = kernel_.elements_of(tensor.tensor);
    if (kernel_.part_of(tensor).reach != Reach::heads) {
      plan::Launch sum{.kernel = kernel_.kernel_of(tensor),
                       .grid = {ceil_div(elements, kThreads), 1, 1},
                       .block = {kThreads, 1, 1},
                       .arguments = {Tensor{BackwardKernel::kWords}, gradient}};
      if (kernel_.rows) add_inputs(sum.arguments);
      return sum;
    }
    std::vector<plan::KernelArgument> arguments = {Tensor{BackwardKernel::kParts}, gradient};
    add_inputs(arguments);
    return {.kernel = kernel_.kernel_of(tensor),
            .grid = {elements, 1, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kThreads * 8,
            .arguments = std::move(arguments)};
  }

  // Adds sums of diagonals to those of the tensor.
  plan::Launch spreading(std::size_t part) const {
    std::vector<plan::KernelArgument> arguments = {plan::TensorOperand{BackwardKernel::kWords}};
    add_inputs(arguments);
    return {.kernel = kernel_.spreading_kernel(part),
            .grid = {ceil_div(kernel_.expressions.parts[part].elements, kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = std::move(arguments)};
  }

  plan::Launch zero_of(const gradient::TensorGradient& tensor) const {
    return {.kernel = kernel_.kernel_of(tensor),
            .grid = {ceil_div(kernel_.elements_of(tensor.tensor), kThreads), 1, 1},
            .block = {kThreads, 1, 1},
            .arguments = {plan::TensorOperand{gradient::gradient_name(tensor.tensor)}}};
  }

  // Operands of the backward kernel, in the order of its parameters.
  std::vector<std::string> operands() const {
    std::vector<std::string> names;
    if (kernel_.tile.is_short) {
      names = kernel_.operands_of_rows();
    } else {
      names = {BackwardKernel::kExponents, BackwardKernel::kDeltas};
      if (kernel_.wants("dq")) names.emplace_back(BackwardKernel::kSums);
    }
    if (kernel_.ordered()) names.emplace_back(BackwardKernel::kTurns);
    for (const char* gradient : {"dk", "dv"}) {
      if (kernel_.wants(gradient)) names.emplace_back(gradient);
    }
    if (kernel_.rows) names.insert(names.end(), {"amax_dp", "amax_dk", "amax_dv"});
    if (kernel_.divides()) names.emplace_back(BackwardKernel::kKeySums);
    if (kernel_.count_of(Reach::heads) > 0) names.emplace_back(BackwardKernel::kParts);
    if (kernel_.words > 0) names.emplace_back(BackwardKernel::kWords);
    for (const gradient::TensorGradient* tensor : kernel_.by_scores()) {
      if (kernel_.part_of(*tensor).reach == Reach::own)
        names.push_back(gradient::gradient_name(tensor->tensor));
    }
    if (!kernel_.tile.is_short) names.emplace_back(BackwardKernel::kCounter);
    if (kernel_.made_lists) names.insert(names.end(), {kSortedTiles, kRunsOfTiles});
    return names;
  }

  static void add_starts(std::vector<plan::KernelArgument>& arguments, bool has, const char* name) {
    if (has) arguments.emplace_back(plan::TensorOperand{name});
  }

  std::vector<plan::KernelArgument> inputs() const {
    return arguments_of(kernel_.expressions.inputs);
  }

  void add_inputs(std::vector<plan::KernelArgument>& arguments) const {
    std::ranges::copy(inputs(), std::back_inserter(arguments));
  }

  static constexpr std::int64_t kThreads = BackwardKernel::kThreads;
  // Constants of attn/backward_convert.cuh.
  static constexpr std::int64_t kThreadsOfRow = 16, kConvertedRows = 32;
  const BackwardKernel& kernel_;
};

class BackwardProgram : private BackwardLaunches {
 public:
  using BackwardLaunches::BackwardLaunches;

  // The program with the steps of learned sinks, which read nothing per score.
  plan::Program program(const LearnedGradients& learned) const {
    std::set<std::string> used = plan::names_used(learned.steps);
    used.insert({"q", "k", "v", "o", "do", "lse"});
    for (const plan::OperandSource& source : kernel_.expressions.inputs.operands) {
      used.insert(*plan::name_of(source));
    }
    use_pages(kernel_.whole, used);
    const Controls control = controls(kernel_.whole, used);
    plan::Program program;
    program.tensors = backward_tensors(kernel_.whole, used, control, kernel_.gradients);
    program.internals = control.internals;
    program.steps.assign(control.steps.begin(), control.steps.end());
    std::ranges::copy(learned.internals, std::back_inserter(program.internals));
    std::ranges::copy(learned.steps, std::back_inserter(program.steps));
    program.params = bound_params(kernel_.whole, used);
    // Those of 8 bits make largest magnitudes, whatever is wanted.
    if (kernel_.own_gradients().empty() && !kernel_.rows) return program;
    plan::KernelStep step{.outputs = kernel_.own_gradients(),
                          .zeroed = zeroed(),
                          .launches = {},
                          .source = source_of(kernel_),
                          .facts = facts()};
    if (kernel_.made_lists)
      kernel_.made_lists->add(program, step, BackwardKernel::kCounter, inputs());
    std::ranges::move(launches(), std::back_inserter(step.launches));
    const auto main = std::ranges::find(step.launches, kernel_.name(), &plan::Launch::kernel);
    step.facts->launch = main - step.launches.begin();
    add_internals(program, step);
    read_pages(kernel_.whole, program, step);
    program.steps.emplace_back(std::move(step));
    return program;
  }

 private:
  std::vector<std::string> zeroed() const {
    if (kernel_.tile.is_short) return {};
    return {BackwardKernel::kCounter};
  }

  std::int64_t table_stages() const {
    if (!kernel_.expressions.table) return 0;
    return kernel_.tile.is_short ? 1 : kernel_.tile.stages;
  }

  plan::KernelFacts facts() const {
    plan::KernelFacts facts{.backward = true,
                            .tile = kernel_.tile.keys,
                            .block = kernel_.tile.rows,
                            .depth = kernel_.depth(),
                            .width = kernel_.width(),
                            .groups = kernel_.tile.groups(),
                            .stages = kernel_.tile.stages,
                            .table_stages = table_stages(),
                            .items = kernel_.key_blocks(),
                            .divided = kernel_.parts(),
                            .has_lengths = kernel_.lengths(),
                            .makes_lists = kernel_.made_lists.has_value(),
                            .has_band = kernel_.band.has_value(),
                            .lists_of_batch = kernel_.blocks.axes.batch,
                            .lists_of_head = kernel_.blocks.axes.head};
    if (!kernel_.depends_on_inputs()) {
      facts.blocks = counts_of(kernel_.blocks, kernel_.row_blocks_of_head());
    }
    return facts;
  }

  // What the kernels write beside gradients.
  void add_internals(plan::Program& program, plan::KernelStep& step) const {
    const auto add = [&](const char* name, std::int64_t elements) {
      program.internals.push_back(plan::internal_tensor(name, DType::f32, {elements}));
    };
    if (kernel_.tile.is_short) return add_learned(program, step);
    program.internals.push_back(
        plan::internal_tensor(BackwardKernel::kCounter, DType::i32, {kernel_.counters()}));
    if (kernel_.rows) {
      program.internals.push_back(plan::internal_tensor(
          kRowsTensor, DType::bf16, {elements_of_wide_rows(kernel_.attention)}));
      step.outputs.emplace_back(kRowsTensor);
      step.outputs.insert(step.outputs.end(), std::begin(kAmaxOfGradients),
                          std::end(kAmaxOfGradients));
    }
    for (const char* name : {BackwardKernel::kExponents, BackwardKernel::kDeltas}) {
      add(name, kernel_.heads() * kernel_.padded_rows());
      step.outputs.emplace_back(name);
    }
    if (kernel_.wants("dq")) {
      add(BackwardKernel::kSums, kernel_.heads() * kernel_.padded_rows() * kernel_.depth());
      step.zeroed.emplace_back(BackwardKernel::kSums);
    }
    if (kernel_.divides()) {
      add(BackwardKernel::kKeySums, kernel_.key_sums());
      step.outputs.emplace_back(BackwardKernel::kKeySums);
    }
    if (kernel_.ordered()) {
      program.internals.push_back(plan::internal_tensor(
          BackwardKernel::kTurns, DType::i32, {kernel_.heads() * kernel_.row_blocks_of_head()}));
      step.zeroed.emplace_back(BackwardKernel::kTurns);
    }
    add_learned(program, step);
  }

  // Sums of learned tensors.
  void add_learned(plan::Program& program, plan::KernelStep& step) const {
    if (const std::int64_t of_heads = kernel_.count_of(Reach::heads); of_heads > 0) {
      program.internals.push_back(plan::internal_tensor(BackwardKernel::kParts, DType::f32,
                                                        {of_heads * kernel_.parts_of_learned()}));
      step.zeroed.emplace_back(BackwardKernel::kParts);
    }
    if (kernel_.words > 0) {
      program.internals.push_back(
          plan::internal_tensor(BackwardKernel::kWords, DType::i64, {kernel_.words}));
      step.zeroed.emplace_back(BackwardKernel::kWords);
    }
  }

  std::vector<plan::Launch> launches() const {
    using Tensor = plan::TensorOperand;
    std::vector<plan::Launch> all;
    if (!kernel_.tile.is_short) all.push_back(preparing());
    if (kernel_.shares()) all.push_back(finding_largest());
    std::vector<plan::KernelArgument> arguments;
    for (const char* name : BackwardKernel::kCopied) {
      if (kernel_.tile.of_warps)
        arguments.emplace_back(kernel_.rows ? wide_rows(kernel_.attention, name) : Tensor{name});
      else
        arguments.emplace_back(kernel_.map_of(name));
    }
    add_starts(arguments, kernel_.has_row_starts(), kRowStarts);
    add_starts(arguments, kernel_.has_column_starts(), kColumnStarts);
    for (const std::string& name : operands()) arguments.emplace_back(Tensor{name});
    if (kernel_.expressions.table && kernel_.tile.is_short)
      arguments.emplace_back(Tensor{kernel_.expressions.table->tensor});
    else if (kernel_.expressions.table)
      arguments.emplace_back(map_of_rows(*kernel_.expressions.table, kernel_.tile.rows));
    add_inputs(arguments);
    for (const gradient::TensorGradient* tensor : kernel_.by_scores()) {
      if (kernel_.is_zeroed(*tensor)) all.push_back(zero_of(*tensor));
    }
    all.push_back({.kernel = kernel_.name(),
                   .grid = {kernel_.blocks_of_threads, 1, 1},
                   .block = {kernel_.tile.threads(), 1, 1},
                   .shared_bytes = kernel_.shared_bytes(),
                   .arguments = std::move(arguments)});
    for (std::size_t i = 0; i < kernel_.expressions.parts.size(); ++i) {
      if (kernel_.expressions.parts[i].reach == Reach::diagonal) all.push_back(spreading(i));
    }
    for (const gradient::TensorGradient* tensor : kernel_.by_scores()) {
      if (kernel_.part_of(*tensor).reach != Reach::own) all.push_back(sum_of(*tensor));
    }
    if (!kernel_.tile.is_short && (kernel_.wants("dq") || kernel_.divides()))
      all.push_back(ending());
    return all;
  }
};

}  // namespace

plan::Program program_of(const BackwardKernel& kernel, const LearnedGradients& learned) {
  return BackwardProgram(kernel).program(learned);
}

}  // namespace attn::engines::native
