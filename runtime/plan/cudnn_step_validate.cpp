#include <fmt/format.h>

#include "runtime/graph/extent.h"
#include "runtime/graph/listing.h"
#include "runtime/graph/operands.h"
#include "runtime/plan/program_so_far.h"

namespace attn::plan {
namespace {

constexpr std::int64_t kMaxCount = std::int64_t{1} << 31;

class CudnnStepCheck {
 public:
  explicit CudnnStepCheck(ProgramSoFar& so_far) : so_far_(so_far) {}

  Status run(std::size_t index, const CudnnStep& step) {
    so_far_.turns = step.turns;
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
      so_far_.written[name] = so_far_.written_before(*so_far_.tensors.find(name)->second) + count;
    }
    return {};
  }

 private:
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
    const auto param = so_far_.params.find(std::get<ParamOperand>(source).name);
    if (param == so_far_.params.end()) return "is bound to an unknown param";
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
    const TensorInfo* found = so_far_.tensor(name);
    if (found == nullptr) return fmt::format("is bound to unknown tensor {}", attn::quoted(name));
    const TensorInfo& info = *found;
    const std::string_view fault = misfit(tensor, info, operand);
    if (!fault.empty()) return fmt::format("is bound to {}, which {}", attn::quoted(name), fault);
    const bool writes = step_writes_.contains(tensor.uid);
    if (writes && !is_made(info)) return fmt::format("writes the input {}", attn::quoted(name));
    if (!writes && is_made(info) && !so_far_.is_whole(info)) {
      return fmt::format("reads the {} {} before it is written", what_is(info), attn::quoted(name));
    }
    if (!writes) return "";
    const bool advances = operand.advance != 0;
    if (so_far_.is_output_of_loop(info))
      return fmt::format("writes the output {} in a loop", attn::quoted(name));
    return check_write(tensor, info, advances ? so_far_.turns : 1, step_writes);
  }

  // How many elements of a ragged tensor are written is unknown, so it counts as all.
  std::string check_write(const graph::Tensor& tensor, const TensorInfo& info, std::int64_t parts,
                          std::map<std::string, std::int64_t>& step_writes) const {
    if (so_far_.once.contains(info.name)) {
      return fmt::format("writes {}, which is made at load", attn::quoted(info.name));
    }
    const std::int64_t whole = elements(info.dims);
    const std::int64_t part = tensor.ragged ? whole : elements(tensor.dims);
    const std::int64_t rest = whole - so_far_.written_before(info);
    const bool fits = part <= rest / parts;
    if (fits && step_writes.emplace(info.name, part * parts).second) return "";
    return fmt::format("writes {} a second time", attn::quoted(info.name));
  }

  std::string_view misfit(const graph::Tensor& tensor, const TensorInfo& info,
                          const TensorOperand& operand) const {
    if (info.dtype != tensor.dtype) return "has a different type";
    if (info.bound_strides) return "has bound strides";
    const auto bytes = static_cast<std::int64_t>(size_of(info.dtype));
    // The batch stride of a ragged tensor is unused.
    std::vector<std::int64_t> dims(tensor.dims.begin(), tensor.dims.end());
    if (tensor.ragged) dims.front() = 1;
    const auto reach = last_offset(dims, tensor.strides);
    const auto held = last_offset(info.dims, info.strides);
    const bool fits =
        reach && held && *reach <= *held && so_far_.stays_within(operand, *held - *reach);
    if (!fits) return "is smaller";
    // The offset is inside the tensor here, so its size in bytes does not overflow.
    const bool aligned = tensor.alignment <= info.alignment &&
                         operand.offset * bytes % tensor.alignment == 0 &&
                         operand.advance * bytes % tensor.alignment == 0;
    return aligned ? "" : "guarantees less alignment";
  }

  ProgramSoFar& so_far_;
  std::set<graph::Uid> step_writes_;  // by the nodes of this step
};

}  // namespace

Status check_cudnn_step(std::size_t index, const CudnnStep& step, ProgramSoFar& so_far) {
  return CudnnStepCheck(so_far).run(index, step);
}

}  // namespace attn::plan
