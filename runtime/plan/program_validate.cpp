#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/base/row_format.h"
#include "runtime/graph/extent.h"
#include "runtime/graph/listing.h"
#include "runtime/plan/kernel_step_validate.h"
#include "runtime/plan/program_so_far.h"

namespace attn::plan {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::int64_t kMostDerived = std::int64_t{1} << 34;  // elements of one tensor
// Total of all internal tensors. Plus the largest workspace of a step (manifest.cpp) it fits in 63
// bits.
constexpr std::int64_t kMostInternalBytes = std::int64_t{1} << 61;

// Each check returns an error text, or an empty string.

std::string check_rank(const TensorInfo& tensor) {
  const std::size_t rank = tensor.dims.size();
  if (tensor.strides.size() != rank) {
    return fmt::format("has {} dims and {} strides", rank, tensor.strides.size());
  }
  switch (tensor.role) {
    case TensorRole::captured:
    case TensorRole::control:
    case TensorRole::saved:     // o, or lse
    case TensorRole::gradient:  // dq, or of a captured tensor
    case TensorRole::internal: return rank <= kMaxRank ? "" : fmt::format("has rank {}", rank);
    case TensorRole::cotangent:  // do, or dlse
      return rank == 3 || rank == 4 ? "" : fmt::format("has rank {}, not 3 or 4", rank);
    case TensorRole::amax: return rank == 1 ? "" : fmt::format("has rank {}, not 1", rank);
    case TensorRole::stats: return rank == 3 ? "" : fmt::format("has rank {}, not 3", rank);
    default: return rank == 4 ? "" : fmt::format("has rank {}, not 4", rank);
  }
}

bool may_have_bound_strides(const TensorInfo& tensor) {
  if (tensor.role == TensorRole::internal) return false;
  const bool is_table = tensor.role == TensorRole::control && tensor.dims.size() == 2;
  return is_table || (tensor.dims.size() == 4 && !tensor.addressed_by.empty());
}

bool has_rows_of_format(const TensorInfo& tensor) {
  if (tensor.rows.empty()) return true;
  const auto format = parse_row_format(tensor.rows);
  return format && tensor.dtype == DType::u8 && tensor.dims.size() == 4 &&
         tensor.dims[3] == info(*format).bytes();
}

std::string check_tensor(const TensorInfo& tensor) {
  if (tensor.name.empty()) return "has no name";
  if (std::string what = check_rank(tensor); !what.empty()) return what;
  if (!fits_memory(tensor.dims, tensor.strides, size_of(tensor.dtype))) {
    return "has a dimension below 1, a stride below 0, or is too large";
  }
  if (tensor.alignment < 1 || !std::has_single_bit(static_cast<std::uint64_t>(tensor.alignment))) {
    return fmt::format("has alignment {}, not a power of two", tensor.alignment);
  }
  if (tensor.bound_strides && !may_have_bound_strides(tensor)) {
    return "has bound strides, but no other tensor locates its rows";
  }
  if (!has_rows_of_format(tensor)) return "has rows of another format than its type and dims";
  return "";
}

std::string check_internal(const TensorInfo& tensor) {
  if (std::string what = check_tensor(tensor); !what.empty()) return what;
  if (tensor.role != TensorRole::internal) return "is internal but has another role";
  if (tensor.strides != row_major_strides(tensor.dims))
    return "is internal but not dense row-major";
  if (!is_float(tensor.dtype) && tensor.dtype != DType::i32 && tensor.dtype != DType::i64) {
    return "is internal but is neither a float, i32 nor i64";
  }
  return tensor.alignment == kInternalAlignment ? "" : "is internal but not aligned to 256 bytes";
}

Status add_tensor(const TensorInfo& tensor, std::string what, ProgramSoFar& so_far) {
  if (what.empty() && !so_far.tensors.emplace(tensor.name, &tensor).second)
    what = "is declared twice";
  if (what.empty()) return {};
  return {ErrorCode::invalid_argument,
          fmt::format("tensor {} {}", attn::quoted(tensor.name), what)};
}

Status check_names(const Program& program, ProgramSoFar& so_far) {
  for (const TensorInfo& tensor : program.tensors) {
    std::string what = check_tensor(tensor);
    if (tensor.role == TensorRole::internal) what = "is internal but listed as bound";
    ATTN_RETURN_IF_ERROR(add_tensor(tensor, std::move(what), so_far));
  }
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : program.internals) {
    std::string what = check_internal(tensor);
    if (what.empty())
      bytes += elements(tensor.dims) * static_cast<std::int64_t>(size_of(tensor.dtype)) +
               kInternalAlignment;
    if (bytes > kMostInternalBytes) what = "makes the internal tensors too large";
    ATTN_RETURN_IF_ERROR(add_tensor(tensor, std::move(what), so_far));
  }
  for (const TensorInfo& tensor : program.tensors) {
    if (tensor.addressed_by.empty()) continue;
    const TensorInfo* found = so_far.tensor(tensor.addressed_by);
    if (found == nullptr || found->role != TensorRole::control) {
      return {
          ErrorCode::invalid_argument,
          fmt::format("tensor {} is not addressed by a control tensor", attn::quoted(tensor.name))};
    }
  }
  for (const ParamInfo& param : program.params) {
    std::string_view what;
    if (param.name.empty()) what = "has no name";
    if (!is_scalar_type(param.dtype)) what = "is neither f32 nor i32";
    if (so_far.tensors.contains(param.name)) what = "has the name of a tensor";
    if (!so_far.params.emplace(param.name, &param).second) what = "is declared twice";
    if (!what.empty()) {
      return {ErrorCode::invalid_argument,
              fmt::format("param {} {}", attn::quoted(param.name), what)};
    }
  }
  return {};
}

// Number of launches, at least 1, also for invalid steps.
std::int64_t launches_of(const Step& step) {
  const auto* kernel = std::get_if<KernelStep>(&step);
  if (kernel == nullptr || kernel->launches.size() > kMostLaunches) return 1;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kernel->launches.size()));
}

Status check_turns(const Program& program) {
  std::int64_t runs = 0;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const std::int64_t turns = turns_of(program.steps[i]);
    std::string_view what;
    if (turns < 1) what = "has fewer than 1 turn";
    const std::int64_t launches = launches_of(program.steps[i]);
    if (turns > (kMostRuns - runs) / launches) what = "has too many turns";
    if (!what.empty()) {
      return {ErrorCode::invalid_argument, fmt::format("step {}: {}", i, what)};
    }
    runs += turns * launches;
  }
  return {};
}

std::string reads_bound_strides(const TensorInfo& tensor) {
  return fmt::format("reads {}, whose strides are bound", attn::quoted(tensor.name));
}

// A step that runs once, at load, may only read what exists then.
std::string check_input(const DeriveStep& step, const OperandSource& input,
                        const ProgramSoFar& so_far) {
  if (const auto* param = std::get_if<ParamOperand>(&input)) {
    if (step.once) return "runs once but reads a param";
    return so_far.params.contains(param->name) ? "" : "reads an unknown param";
  }
  const auto* named = std::get_if<TensorOperand>(&input);
  if (named == nullptr) return "reads an input that is neither a tensor nor a param";
  const TensorInfo* found = so_far.tensor(named->name);
  if (found == nullptr) return fmt::format("reads unknown tensor {}", attn::quoted(named->name));
  if (is_made(*found) && !so_far.is_whole(*found)) {
    return fmt::format("reads {} before it is written", attn::quoted(named->name));
  }
  if (found->bound_strides) return reads_bound_strides(*found);
  const auto held = last_offset(found->dims, found->strides);
  if (!so_far.stays_within(*named, *held))
    return fmt::format("reads past the end of {}", attn::quoted(named->name));
  const bool there = !step.once || so_far.once.contains(named->name);
  return there ? "" : fmt::format("runs once but reads {}", attn::quoted(named->name));
}

std::string check_derived(const DeriveStep& step, const std::string& output, ProgramSoFar& so_far) {
  const TensorInfo* found = so_far.tensor(output);
  if (found == nullptr || !is_made(*found)) {
    return fmt::format("derives {}, which is neither an output nor internal", attn::quoted(output));
  }
  if (step.once && found->role != TensorRole::internal) {
    return fmt::format("runs once but derives {}", attn::quoted(output));
  }
  if (!step.once && so_far.once.contains(output)) {
    return fmt::format("writes {}, which is made at load", attn::quoted(output));
  }
  if (step.amends != 0) {
    if (step.once || step.amends < 0 || step.amends > kMostChecked)
      return "amends with an invalid thread count";
    if (so_far.is_whole(*found)) return "";
    return fmt::format("amends {} before it is written", attn::quoted(output));
  }
  if (*last_offset(found->dims, found->strides) >= kMostDerived ||
      elements(found->dims) > kMostDerived) {
    return fmt::format("derives {}, which is too large", attn::quoted(output));
  }
  if (so_far.is_output_of_loop(*found)) {
    return fmt::format("writes the output {} in a loop", attn::quoted(output));
  }
  const bool first = so_far.written.emplace(output, elements(found->dims)).second;
  return first ? "" : fmt::format("writes {} a second time", attn::quoted(output));
}

Status check_step(std::size_t index, const DeriveStep& step, ProgramSoFar& so_far) {
  so_far.turns = step.turns;
  std::string what;
  if (step.once && step.turns != 1) what = "runs once but is in a loop";
  if (step.outputs.empty()) what = "derives nothing";
  if (step.outputs.size() > kMostOutputs) what = "derives too many tensors";
  if (step.expressions.size() != step.outputs.size())
    what = "does not have one expression per output";
  if (step.source.empty()) what = "has no source";
  for (const OperandSource& input : step.inputs) {
    if (what.empty()) what = check_input(step, input, so_far);
  }
  for (const std::string& output : step.outputs) {
    if (what.empty()) what = check_derived(step, output, so_far);
    if (step.once) so_far.once.insert(output);
  }
  if (what.empty()) return {};
  return {ErrorCode::invalid_argument, fmt::format("step {}: {}", index, what)};
}

std::string check_zeroed(const KernelStep& step, const std::string& name, ProgramSoFar& so_far) {
  const TensorInfo* found = so_far.tensor(name);
  if (found == nullptr || found->role != TensorRole::internal) {
    return fmt::format("zeroes {}, which is not internal", attn::quoted(name));
  }
  if (so_far.once.contains(name))
    return fmt::format("zeroes {}, which is made at load", attn::quoted(name));
  if (!names(step, name)) return fmt::format("zeroes {}, which no launch has", attn::quoted(name));
  so_far.written[name] = elements(found->dims);
  return "";
}

std::string check_written(const KernelStep& step, const std::string& name, ProgramSoFar& so_far) {
  const TensorInfo* found = so_far.tensor(name);
  if (so_far.once.contains(name))
    return fmt::format("writes {}, which is made at load", attn::quoted(name));
  if (!names(step, name)) return fmt::format("writes {}, which no launch has", attn::quoted(name));
  if (found == nullptr || !is_made(*found)) {
    return fmt::format("writes {}, which is neither an output nor internal", attn::quoted(name));
  }
  const TensorInfo& tensor = *found;
  if (so_far.is_output_of_loop(tensor))
    return fmt::format("writes the output {} in a loop", attn::quoted(name));
  if (so_far.written_before(tensor) != 0)
    return fmt::format("writes {} a second time", attn::quoted(name));
  so_far.written[name] = elements(tensor.dims);
  return "";
}

std::string check_stride(const StrideArgument& stride, const ProgramSoFar& so_far) {
  const TensorInfo* found = so_far.tensor(stride.tensor);
  const bool fits = found != nullptr && found->bound_strides && stride.axis >= 0 &&
                    stride.axis < static_cast<std::int64_t>(found->dims.size()) &&
                    (!stride.in_steps || (stride.axis < 2 && found->dims.size() == 4));
  return fits ? "" : fmt::format("reads an unknown stride of {}", attn::quoted(stride.tensor));
}

// Strides of pages and heads are in steps exactly where the launch has a map of these.
std::string check_steps(const Launch& launch) {
  const auto has_map = [&launch](const std::string& tensor) {
    return std::ranges::any_of(launch.arguments, [&tensor](const KernelArgument& argument) {
      const auto* map = std::get_if<TensorMapArgument>(&argument);
      return map != nullptr && map->tensor.name == tensor && !map->axes.empty() &&
             map->axes.back() == TensorMapArgument::kPagesAndHeads;
    });
  };
  for (const KernelArgument& argument : launch.arguments) {
    const auto* stride = std::get_if<StrideArgument>(&argument);
    if (stride != nullptr && stride->in_steps && !has_map(stride->tensor)) {
      return fmt::format("takes strides of {} in steps of a map that it does not have",
                         attn::quoted(stride->tensor));
    }
  }
  return "";
}

std::string check_argument(const KernelStep& step, const KernelArgument& argument,
                           const ProgramSoFar& so_far) {
  if (const auto* constant = std::get_if<ConstantOperand>(&argument)) {
    return check_constant(*constant);
  }
  if (const auto* param = std::get_if<ParamOperand>(&argument)) {
    return so_far.params.contains(param->name) ? "" : "reads an unknown param";
  }
  if (const auto* stride = std::get_if<StrideArgument>(&argument)) {
    return check_stride(*stride, so_far);
  }
  const TensorOperand& named = *tensor_of(argument);
  const TensorInfo* found = so_far.tensor(named.name);
  if (found == nullptr) return fmt::format("reads unknown tensor {}", attn::quoted(named.name));
  const TensorInfo& tensor = *found;
  const bool writes = std::ranges::find(step.outputs, named.name) != step.outputs.end();
  if (is_made(tensor) && !writes && !so_far.is_whole(tensor)) {
    return fmt::format("reads {} before it is written", attn::quoted(named.name));
  }
  std::optional<std::int64_t> reach = 0;
  if (const auto* map = std::get_if<TensorMapArgument>(&argument)) {
    if (std::string what = check_axes(*map, tensor); !what.empty()) return what;
    const TensorMapArgument whole = resolved(*map, tensor);
    if (std::string what = check_map(whole, tensor); !what.empty()) return what;
    reach = last_mapped(whole);
  }
  const auto held = last_offset(tensor.dims, tensor.strides);
  const bool fits = reach && *reach <= *held && so_far.stays_within(named, *held - *reach);
  return fits ? "" : fmt::format("reads past the end of {}", attn::quoted(named.name));
}

Status check_step(std::size_t index, const KernelStep& step, ProgramSoFar& so_far) {
  so_far.turns = step.turns;
  std::string what = check_launches(step);
  for (const std::string& name : step.zeroed) {
    if (what.empty()) what = check_zeroed(step, name, so_far);
  }
  for (const Launch& launch : step.launches) {
    for (const KernelArgument& argument : launch.arguments) {
      if (what.empty()) what = check_argument(step, argument, so_far);
    }
    if (what.empty()) what = check_steps(launch);
  }
  for (const std::string& name : step.outputs) {
    if (what.empty()) what = check_written(step, name, so_far);
  }
  if (what.empty()) what = check_schedule(step, so_far);
  if (what.empty()) return {};
  return {ErrorCode::invalid_argument, fmt::format("step {}: {}", index, what)};
}

Status check_step(std::size_t index, const CudnnStep& step, ProgramSoFar& so_far) {
  return check_cudnn_step(index, step, so_far);
}

bool is_scores(const std::vector<std::int64_t>& dims) {
  if (dims.size() != 4) return false;
  const auto last = last_offset(dims, row_major_strides(dims));
  return last && *last < kMostChecked;
}

// Inputs of the check must be bound tensors or params.
std::string check_bound_input(const OperandSource& input, const ProgramSoFar& so_far) {
  if (const auto* param = std::get_if<ParamOperand>(&input)) {
    return so_far.params.contains(param->name) ? "" : "reads an unknown param";
  }
  const auto* named = std::get_if<TensorOperand>(&input);
  if (named == nullptr) return "reads an input that is neither a tensor nor a param";
  const TensorInfo* found = so_far.tensor(named->name);
  const bool whole = named->offset == 0 && named->advance == 0;
  if (found != nullptr && found->bound_strides) return reads_bound_strides(*found);
  if (found != nullptr && !is_made(*found) && whole) return "";
  return fmt::format("reads {}, which is not bound", attn::quoted(named->name));
}

Status check_check(const IndexCheck& check, const ProgramSoFar& so_far) {
  std::string what;
  if (check.faults.empty() || check.faults.size() > kMostFaults) what = "has no faults or too many";
  if (check.quick < 1 || check.quick > kMostChecked) what = "has an invalid thread count";
  if (!is_scores(check.scores)) what = "has invalid score dims";
  if (check.source.empty()) what = "has no source";
  for (const OperandSource& input : check.inputs) {
    if (what.empty()) what = check_bound_input(input, so_far);
  }
  if (what.empty()) return {};
  return {ErrorCode::invalid_argument, fmt::format("check: {}", what)};
}

}  // namespace

Status validate(const Program& program) {
  ProgramSoFar so_far;
  ATTN_RETURN_IF_ERROR(check_names(program, so_far));
  if (program.steps.empty()) return {ErrorCode::invalid_argument, "the program has no steps"};
  ATTN_RETURN_IF_ERROR(check_turns(program));
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    ATTN_RETURN_IF_ERROR(std::visit(
        [&so_far, i](const auto& step) { return check_step(i, step, so_far); }, program.steps[i]));
  }
  for (const auto& [name, tensor] : so_far.tensors) {
    if (!is_made(*tensor) || so_far.is_whole(*tensor)) continue;
    return {ErrorCode::invalid_argument,
            fmt::format("{} {} is not completely written", what_is(*tensor), attn::quoted(name))};
  }
  return program.check ? check_check(*program.check, so_far) : Status();
}

}  // namespace attn::plan
