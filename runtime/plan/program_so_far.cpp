#include "runtime/plan/program_so_far.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace attn::plan {

const TensorInfo* ProgramSoFar::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : found->second;
}

bool ProgramSoFar::is_whole(const TensorInfo& tensor) const {
  const auto found = written.find(tensor.name);
  if (found == written.end()) return false;
  return tensor.role == TensorRole::internal || found->second == elements(tensor.dims);
}

std::int64_t ProgramSoFar::written_before(const TensorInfo& tensor) const {
  const auto found = written.find(tensor.name);
  if (found == written.end()) return 0;
  const bool again = tensor.role == TensorRole::internal && found->second == elements(tensor.dims);
  return again ? 0 : found->second;
}

bool ProgramSoFar::is_output_of_loop(const TensorInfo& tensor) const {
  return turns != 1 && tensor.role != TensorRole::internal;
}

bool ProgramSoFar::stays_within(const TensorOperand& operand, std::int64_t last) const {
  if (operand.offset < 0 || operand.offset > last || operand.advance < 0) return false;
  if (turns == 1) return operand.advance == 0;
  return operand.advance <= (last - operand.offset) / (turns - 1);
}

bool is_made(const TensorInfo& tensor) {
  return tensor.is_output() || tensor.role == TensorRole::internal;
}

std::string_view what_is(const TensorInfo& tensor) {
  return tensor.is_output() ? "output" : "internal tensor";
}

std::int64_t elements(std::span<const std::int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_scalar_type(DType type) { return type == DType::f32 || type == DType::i32; }

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

}  // namespace attn::plan
