#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "runtime/graph/extent.h"
#include "runtime/graph/listing.h"
#include "runtime/graph/operands.h"
#include "runtime/plan/kernel_step_validate.h"
#include "runtime/plan/program.h"

namespace attn::plan {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 31;
constexpr std::int64_t kMostDerived = std::int64_t{1} << 34;  // elements of one tensor
// Total of all internal tensors. Plus the largest workspace of a step (manifest.cpp) it fits in 63
// bits.
constexpr std::int64_t kMostInternalBytes = std::int64_t{1} << 61;

bool is_scalar_type(DType type) { return type == DType::f32 || type == DType::i32; }

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
    case TensorRole::amax: return rank == 1 ? "" : fmt::format("has rank {}, not 1", rank);
    case TensorRole::stats: return rank == 3 ? "" : fmt::format("has rank {}, not 3", rank);
    default: return rank == 4 ? "" : fmt::format("has rank {}, not 4", rank);
  }
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

std::string check_constant(const ConstantOperand& constant) {
  if (!is_scalar_type(constant.dtype)) {
    return fmt::format("is a constant of type {}, not f32 or i32", to_string(constant.dtype));
  }
  if (std::isnan(constant.value)) return "is a NaN constant";
  if (constant.dtype == DType::f32) return "";
  using Limits = std::numeric_limits<std::int32_t>;
  const bool fits = constant.value >= Limits::min() && constant.value <= Limits::max() &&
                    constant.value == std::floor(constant.value);
  return fits ? "" : fmt::format("is an i32 constant with value {}", constant.value);
}

class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {}

  Status run() {
    ATTN_RETURN_IF_ERROR(check_names());
    if (program_.steps.empty()) return {ErrorCode::invalid_argument, "the program has no steps"};
    ATTN_RETURN_IF_ERROR(check_turns());
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      ATTN_RETURN_IF_ERROR(std::visit([this, i](const auto& step) { return check_step(i, step); },
                                      program_.steps[i]));
    }
    for (const auto& [name, tensor] : tensors_) {
      if (!is_made(*tensor) || is_whole(*tensor)) continue;
      return {ErrorCode::invalid_argument,
              fmt::format("{} {} is not completely written", what_is(*tensor), quoted(name))};
    }
    return program_.check ? check_check(*program_.check) : Status();
  }

 private:
  // Whether steps write it: outputs and internal tensors.
  static bool is_made(const TensorInfo& tensor) {
    return tensor.is_output() || tensor.role == TensorRole::internal;
  }
  static std::string_view what_is(const TensorInfo& tensor) {
    return tensor.is_output() ? "output" : "internal tensor";
  }

  static std::int64_t elements(std::span<const std::int64_t> dims) {
    return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
  }
  static std::int64_t bytes_of(const TensorInfo& tensor) {
    return elements(tensor.dims) * static_cast<std::int64_t>(size_of(tensor.dtype));
  }
  // Whether earlier steps have written all of it; for an internal tensor, any part.
  bool is_whole(const TensorInfo& tensor) const {
    const auto found = written_.find(tensor.name);
    if (found == written_.end()) return false;
    return tensor.role == TensorRole::internal || found->second == elements(tensor.dims);
  }

  Status add_tensor(const TensorInfo& tensor, std::string what) {
    if (what.empty() && !tensors_.emplace(tensor.name, &tensor).second) what = "is declared twice";
    if (what.empty()) return {};
    return {ErrorCode::invalid_argument, fmt::format("tensor {} {}", quoted(tensor.name), what)};
  }

  Status check_names() {
    for (const TensorInfo& tensor : program_.tensors) {
      std::string what = check_tensor(tensor);
      if (tensor.role == TensorRole::internal) what = "is internal but listed as bound";
      ATTN_RETURN_IF_ERROR(add_tensor(tensor, std::move(what)));
    }
    std::int64_t bytes = 0;
    for (const TensorInfo& tensor : program_.internals) {
      std::string what = check_internal(tensor);
      if (what.empty()) bytes += bytes_of(tensor) + kInternalAlignment;
      if (bytes > kMostInternalBytes) what = "makes the internal tensors too large";
      ATTN_RETURN_IF_ERROR(add_tensor(tensor, std::move(what)));
    }
    for (const TensorInfo& tensor : program_.tensors) {
      if (tensor.addressed_by.empty()) continue;
      const auto found = tensors_.find(tensor.addressed_by);
      if (found == tensors_.end() || found->second->role != TensorRole::control) {
        return {ErrorCode::invalid_argument,
                fmt::format("tensor {} is not addressed by a control tensor", quoted(tensor.name))};
      }
    }
    for (const ParamInfo& param : program_.params) {
      std::string_view what;
      if (param.name.empty()) what = "has no name";
      if (!is_scalar_type(param.dtype)) what = "is neither f32 nor i32";
      if (tensors_.contains(param.name)) what = "has the name of a tensor";
      if (!params_.emplace(param.name, &param).second) what = "is declared twice";
      if (!what.empty()) {
        return {ErrorCode::invalid_argument, fmt::format("param {} {}", quoted(param.name), what)};
      }
    }
    return {};
  }

  // Number of launches, at least 1, also for invalid steps.
  static std::int64_t launches_of(const Step& step) {
    const auto* kernel = std::get_if<KernelStep>(&step);
    if (kernel == nullptr || kernel->launches.size() > kMostLaunches) return 1;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(kernel->launches.size()));
  }

  Status check_turns() const {
    std::int64_t runs = 0;
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const std::int64_t turns = turns_of(program_.steps[i]);
      std::string_view what;
      if (turns < 1) what = "has fewer than 1 turn";
      const std::int64_t launches = launches_of(program_.steps[i]);
      if (turns > (kMostRuns - runs) / launches) what = "has too many turns";
      if (!what.empty()) {
        return {ErrorCode::invalid_argument, fmt::format("step {}: {}", i, what)};
      }
      runs += turns * launches;
    }
    return {};
  }

  Status check_step(std::size_t index, const DeriveStep& step) {
    turns_ = step.turns;
    std::string what;
    if (step.once && step.turns != 1) what = "runs once but is in a loop";
    if (step.outputs.empty()) what = "derives nothing";
    if (step.outputs.size() > kMostOutputs) what = "derives too many tensors";
    if (step.expressions.size() != step.outputs.size())
      what = "does not have one expression per output";
    if (step.source.empty()) what = "has no source";
    for (const OperandSource& input : step.inputs) {
      if (what.empty()) what = check_input(step, input);
    }
    for (const std::string& output : step.outputs) {
      if (what.empty()) what = check_derived(step, output);
      if (step.once) once_.insert(output);
    }
    if (what.empty()) return {};
    return {ErrorCode::invalid_argument, fmt::format("step {}: {}", index, what)};
  }

  // A step that runs once, at load, may only read what exists then.
  std::string check_input(const DeriveStep& step, const OperandSource& input) const {
    if (const auto* param = std::get_if<ParamOperand>(&input)) {
      if (step.once) return "runs once but reads a param";
      return params_.contains(param->name) ? "" : "reads an unknown param";
    }
    const auto* named = std::get_if<TensorOperand>(&input);
    if (named == nullptr) return "reads an input that is neither a tensor nor a param";
    const auto found = tensors_.find(named->name);
    if (found == tensors_.end()) return fmt::format("reads unknown tensor {}", quoted(named->name));
    if (is_made(*found->second) && !is_whole(*found->second)) {
      return fmt::format("reads {} before it is written", quoted(named->name));
    }
    const auto held = last_offset(found->second->dims, found->second->strides);
    if (!stays_within(*named, *held))
      return fmt::format("reads past the end of {}", quoted(named->name));
    const bool there = !step.once || once_.contains(named->name);
    return there ? "" : fmt::format("runs once but reads {}", quoted(named->name));
  }

  Status check_check(const IndexCheck& check) const {
    std::string what;
    if (check.faults.empty() || check.faults.size() > kMostFaults)
      what = "has no faults or too many";
    if (check.quick < 1 || check.quick > kMostChecked) what = "has an invalid thread count";
    if (!is_scores(check.scores)) what = "has invalid score dims";
    if (check.source.empty()) what = "has no source";
    for (const OperandSource& input : check.inputs) {
      if (what.empty()) what = check_bound_input(input);
    }
    if (what.empty()) return {};
    return {ErrorCode::invalid_argument, fmt::format("check: {}", what)};
  }

  static bool is_scores(const std::vector<std::int64_t>& dims) {
    if (dims.size() != 4) return false;
    const auto last = last_offset(dims, row_major_strides(dims));
    return last && *last < kMostChecked;
  }

  // Inputs of the check must be bound tensors or params.
  std::string check_bound_input(const OperandSource& input) const {
    if (const auto* param = std::get_if<ParamOperand>(&input)) {
      return params_.contains(param->name) ? "" : "reads an unknown param";
    }
    const auto* named = std::get_if<TensorOperand>(&input);
    if (named == nullptr) return "reads an input that is neither a tensor nor a param";
    const auto found = tensors_.find(named->name);
    const bool whole = named->offset == 0 && named->advance == 0;
    if (found != tensors_.end() && !is_made(*found->second) && whole) return "";
    return fmt::format("reads {}, which is not bound", quoted(named->name));
  }

  std::string check_derived(const DeriveStep& step, const std::string& output) {
    const auto found = tensors_.find(output);
    if (found == tensors_.end() || !is_made(*found->second)) {
      return fmt::format("derives {}, which is neither an output nor internal", quoted(output));
    }
    if (step.once && found->second->role != TensorRole::internal) {
      return fmt::format("runs once but derives {}", quoted(output));
    }
    if (!step.once && once_.contains(output)) {
      return fmt::format("writes {}, which is made at load", quoted(output));
    }
    if (step.amends != 0) {
      if (step.once || step.amends < 0 || step.amends > kMostChecked)
        return "amends with an invalid thread count";
      if (is_whole(*found->second)) return "";
      return fmt::format("amends {} before it is written", quoted(output));
    }
    if (*last_offset(found->second->dims, found->second->strides) >= kMostDerived ||
        elements(found->second->dims) > kMostDerived) {
      return fmt::format("derives {}, which is too large", quoted(output));
    }
    if (is_output_of_loop(*found->second)) {
      return fmt::format("writes the output {} in a loop", quoted(output));
    }
    const bool first = written_.emplace(output, elements(found->second->dims)).second;
    return first ? "" : fmt::format("writes {} a second time", quoted(output));
  }

  Status check_step(std::size_t index, const KernelStep& step) {
    turns_ = step.turns;
    std::string what = check_launches(step);
    for (const std::string& name : step.zeroed) {
      if (what.empty()) what = check_zeroed(step, name);
    }
    for (const Launch& launch : step.launches) {
      for (const KernelArgument& argument : launch.arguments) {
        if (what.empty()) what = check_argument(step, argument);
      }
    }
    for (const std::string& name : step.outputs) {
      if (what.empty()) what = check_written(step, name);
    }
    if (what.empty()) return {};
    return {ErrorCode::invalid_argument, fmt::format("step {}: {}", index, what)};
  }

  std::string check_zeroed(const KernelStep& step, const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second->role != TensorRole::internal) {
      return fmt::format("zeroes {}, which is not internal", quoted(name));
    }
    if (once_.contains(name)) return fmt::format("zeroes {}, which is made at load", quoted(name));
    if (!names(step, name)) return fmt::format("zeroes {}, which no launch has", quoted(name));
    written_[name] = elements(found->second->dims);
    return "";
  }

  std::string check_written(const KernelStep& step, const std::string& name) {
    const auto found = tensors_.find(name);
    if (once_.contains(name)) return fmt::format("writes {}, which is made at load", quoted(name));
    if (!names(step, name)) return fmt::format("writes {}, which no launch has", quoted(name));
    if (found == tensors_.end() || !is_made(*found->second)) {
      return fmt::format("writes {}, which is neither an output nor internal", quoted(name));
    }
    const TensorInfo& tensor = *found->second;
    if (is_output_of_loop(tensor))
      return fmt::format("writes the output {} in a loop", quoted(name));
    if (written_before(tensor) != 0) return fmt::format("writes {} a second time", quoted(name));
    written_[name] = elements(tensor.dims);
    return "";
  }

  std::string check_argument(const KernelStep& step, const KernelArgument& argument) const {
    if (const auto* constant = std::get_if<ConstantOperand>(&argument)) {
      return check_constant(*constant);
    }
    if (const auto* param = std::get_if<ParamOperand>(&argument)) {
      return params_.contains(param->name) ? "" : "reads an unknown param";
    }
    const TensorOperand& named = *tensor_of(argument);
    const auto found = tensors_.find(named.name);
    if (found == tensors_.end()) return fmt::format("reads unknown tensor {}", quoted(named.name));
    const TensorInfo& tensor = *found->second;
    const bool writes = std::ranges::find(step.outputs, named.name) != step.outputs.end();
    if (is_made(tensor) && !writes && !is_whole(tensor)) {
      return fmt::format("reads {} before it is written", quoted(named.name));
    }
    std::optional<std::int64_t> reach = 0;
    if (const auto* map = std::get_if<TensorMapArgument>(&argument)) {
      if (std::string what = check_map(*map, tensor); !what.empty()) return what;
      reach = last_mapped(*map);
    }
    const auto held = last_offset(tensor.dims, tensor.strides);
    const bool fits = reach && *reach <= *held && stays_within(named, *held - *reach);
    return fits ? "" : fmt::format("reads past the end of {}", quoted(named.name));
  }

  Status check_step(std::size_t index, const CudnnStep& step) {
    turns_ = step.turns;
    if (Status graph = graph::validate(step.graph); !graph.ok()) {
      Error error = graph.error();
      error.message = fmt::format("step {}: {}", index, error.message);
      return error;
    }
    std::map<graph::Uid, const graph::Tensor*> tensors;
    for (const graph::Tensor& tensor : step.graph.tensors) tensors.emplace(tensor.uid, &tensor);
    step_writes_ = graph::written_by(step.graph);
    std::set<graph::Uid> bound;
    std::map<std::string, std::int64_t> writes;
    for (const Operand& operand : step.operands) {
      const auto tensor = tensors.find(operand.uid);
      std::string what = "is not in the graph";
      if (tensor != tensors.end()) {
        what = bound.insert(operand.uid).second
                   ? check_operand(*tensor->second, operand.source, writes)
                   : "is bound twice";
      }
      if (!what.empty()) return operand_error(index, operand.uid, what);
    }
    for (const graph::Tensor& tensor : step.graph.tensors) {
      if (tensor.storage != graph::Storage::virtual_value && !bound.contains(tensor.uid)) {
        return operand_error(index, tensor.uid, "has no operand");
      }
    }
    for (const auto& [name, count] : writes) {
      written_[name] = written_before(*tensors_.find(name)->second) + count;
    }
    return {};
  }

  static Status operand_error(std::size_t step, graph::Uid uid, std::string_view what) {
    return {ErrorCode::invalid_argument, fmt::format("step {}: tensor %{} {}", step, uid, what)};
  }

  std::string check_operand(const graph::Tensor& tensor, const OperandSource& source,
                            std::map<std::string, std::int64_t>& writes) const {
    if (const auto* named = std::get_if<TensorOperand>(&source)) {
      return check_bound_tensor(tensor, *named, writes);
    }
    if (const auto* iota = std::get_if<IotaOperand>(&source)) {
      return check_iota(tensor, *iota);
    }
    if (tensor.storage != graph::Storage::host_scalar) return "is bound to a scalar but is not one";
    if (const auto* constant = std::get_if<ConstantOperand>(&source)) {
      if (constant->dtype != tensor.dtype) return "is bound to a constant of another type";
      return check_constant(*constant);
    }
    const auto param = params_.find(std::get<ParamOperand>(source).name);
    if (param == params_.end()) return "is bound to an unknown param";
    return param->second->dtype == tensor.dtype ? "" : "is bound to a param of another type";
  }

  // The iota must not be larger than what the graph reads, since it takes memory.
  std::string check_iota(const graph::Tensor& tensor, const IotaOperand& iota) const {
    if (tensor.storage != graph::Storage::device) return "is not in device memory";
    if (tensor.dtype != DType::i32) return "is bound to an iota but is not i32";
    if (iota.count < 1 || iota.count > kMaxCount) {
      return fmt::format("is bound to an iota of {} elements", iota.count);
    }
    const auto reach = last_offset(tensor.dims, tensor.strides);
    if (!reach || *reach >= iota.count) return "reads past the end of its iota";
    if (*reach + 1 < iota.count) {
      return fmt::format("is bound to an iota of {} elements but reads {}", iota.count, *reach + 1);
    }
    return step_writes_.contains(tensor.uid) ? "writes its iota" : "";
  }

  std::string check_bound_tensor(const graph::Tensor& tensor, const TensorOperand& operand,
                                 std::map<std::string, std::int64_t>& step_writes) const {
    const std::string& name = operand.name;
    if (tensor.storage != graph::Storage::device) return "is not in device memory";
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return fmt::format("is bound to unknown tensor {}", quoted(name));
    const TensorInfo& info = *found->second;
    const std::string_view fault = misfit(tensor, info, operand);
    if (!fault.empty()) return fmt::format("is bound to {}, which {}", quoted(name), fault);
    const bool writes = step_writes_.contains(tensor.uid);
    if (writes && !is_made(info)) return fmt::format("writes the input {}", quoted(name));
    if (!writes && is_made(info) && !is_whole(info)) {
      return fmt::format("reads the {} {} before it is written", what_is(info), quoted(name));
    }
    if (!writes) return "";
    const bool advances = operand.advance != 0;
    if (is_output_of_loop(info)) return fmt::format("writes the output {} in a loop", quoted(name));
    return check_write(tensor, info, advances ? turns_ : 1, step_writes);
  }

  // How many elements of a ragged tensor are written is unknown, so it counts as all.
  std::string check_write(const graph::Tensor& tensor, const TensorInfo& info, std::int64_t parts,
                          std::map<std::string, std::int64_t>& step_writes) const {
    if (once_.contains(info.name)) {
      return fmt::format("writes {}, which is made at load", quoted(info.name));
    }
    const std::int64_t whole = elements(info.dims);
    const std::int64_t part = tensor.ragged ? whole : elements(tensor.dims);
    const std::int64_t rest = whole - written_before(info);
    const bool fits = part <= rest / parts;
    if (fits && step_writes.emplace(info.name, part * parts).second) return "";
    return fmt::format("writes {} a second time", quoted(info.name));
  }

  // Elements that were written before. An internal tensor that is completely written may be written
  // again.
  std::int64_t written_before(const TensorInfo& info) const {
    const auto found = written_.find(info.name);
    if (found == written_.end()) return 0;
    const bool again = info.role == TensorRole::internal && found->second == elements(info.dims);
    return again ? 0 : found->second;
  }

  bool is_output_of_loop(const TensorInfo& info) const {
    return turns_ != 1 && info.role != TensorRole::internal;
  }

  // Whether the operand begins at or before element `last` in every iteration.
  bool stays_within(const TensorOperand& operand, std::int64_t last) const {
    if (operand.offset < 0 || operand.offset > last || operand.advance < 0) return false;
    if (turns_ == 1) return operand.advance == 0;
    return operand.advance <= (last - operand.offset) / (turns_ - 1);
  }

  std::string_view misfit(const graph::Tensor& tensor, const TensorInfo& info,
                          const TensorOperand& operand) const {
    if (info.dtype != tensor.dtype) return "has a different type";
    const auto bytes = static_cast<std::int64_t>(size_of(info.dtype));
    // The batch stride of a ragged tensor is unused.
    std::vector<std::int64_t> dims(tensor.dims.begin(), tensor.dims.end());
    if (tensor.ragged) dims.front() = 1;
    const auto reach = last_offset(dims, tensor.strides);
    const auto held = last_offset(info.dims, info.strides);
    const bool fits = reach && held && *reach <= *held && stays_within(operand, *held - *reach);
    if (!fits) return "is smaller";
    // The offset is inside the tensor here, so its size in bytes does not overflow.
    const bool aligned = tensor.alignment <= info.alignment &&
                         operand.offset * bytes % tensor.alignment == 0 &&
                         operand.advance * bytes % tensor.alignment == 0;
    return aligned ? "" : "guarantees less alignment";
  }

  const Program& program_;
  std::map<std::string, const TensorInfo*> tensors_;
  std::map<std::string, const ParamInfo*> params_;
  std::map<std::string, std::int64_t> written_;  // elements written by earlier steps
  std::set<std::string> once_;                   // those written when the plan is loaded
  std::set<graph::Uid> step_writes_;             // by the nodes of the current step
  std::int64_t turns_ = 1;                       // of the current step
};

}  // namespace

std::int64_t iota_elements(const Program& program) {
  std::int64_t largest = 0;
  for (const CudnnStep* step : steps_of<CudnnStep>(program)) {
    for (const Operand& operand : step->operands) {
      const auto* iota = std::get_if<IotaOperand>(&operand.source);
      if (iota != nullptr) largest = std::max(largest, iota->count);
    }
  }
  return largest;
}

std::int64_t turns_of(const Step& step) {
  return std::visit([](const auto& each) { return each.turns; }, step);
}

std::vector<Run> runs_of(const Program& program) {
  std::vector<Run> runs;
  for (std::size_t first = 0; first < program.steps.size();) {
    const std::int64_t turns = turns_of(program.steps[first]);
    std::size_t end = first + 1;
    while (turns > 1 && end < program.steps.size() && turns_of(program.steps[end]) == turns) ++end;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      for (std::size_t step = first; step < end; ++step) runs.push_back({step, turn});
    }
    first = end;
  }
  return runs;
}

std::int64_t derived_elements(const Program& program, const DeriveStep& step) {
  if (step.amends > 0) return step.amends;
  std::int64_t elements = 0;
  for (const auto* tensors : {&program.internals, &program.tensors}) {
    for (const TensorInfo& tensor : *tensors) {
      if (std::ranges::find(step.outputs, tensor.name) == step.outputs.end()) continue;
      elements += std::accumulate(tensor.dims.begin(), tensor.dims.end(), std::int64_t{1},
                                  std::multiplies<>());
    }
  }
  return elements;
}

Status validate(const Program& program) { return Validator(program).run(); }

}  // namespace attn::plan
