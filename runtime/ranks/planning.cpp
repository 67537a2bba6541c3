#include "runtime/ranks/planning.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/extent.h"
#include "runtime/ranks/exchanges.h"

namespace attn::ranks {

Error damaged(std::string message) { return {ErrorCode::plan_damaged, std::move(message)}; }

Planning::Planning(const ScheduleInputs& inputs) : inputs_(inputs) {
  const auto& exchanges = is_backward() ? program().backward_inputs : program().inputs;
  schedule.stages.resize(exchanges.size());
  schedule.parts.resize(parts());
  for (std::size_t part = 0; part < parts(); ++part) {
    if (plan(part) != nullptr) schedule.parts[part].resize(plan(part)->tensors.size());
  }
}

Interval Planning::heads(Divided of, Interval key_heads) const {
  return heads_of(of, key_heads, division());
}

const Intervals& Planning::indices(Divided of, const Part& part) const {
  return of == Divided::keys ? part.keys : part.rows;
}

const Intervals& Planning::home_indices(Divided of) const {
  return of == Divided::keys ? program().keys : program().rows;
}

const std::vector<WholeTensor>& Planning::tensors() const {
  return is_backward() ? division().backward : division().forward;
}

std::optional<std::size_t> Planning::find(std::string_view name) const {
  const auto found = std::ranges::find(inputs_.home, name, &plan::TensorInfo::name);
  if (found == inputs_.home.end()) return std::nullopt;
  return static_cast<std::size_t>(found - inputs_.home.begin());
}

std::optional<Place> Planning::home(std::string_view name) const {
  const auto index = find(name);
  if (!index || tensors()[*index].divided == Divided::no) return std::nullopt;
  const Divided of = tensors()[*index].divided;
  return place_of(inputs_.home[*index], {Address::In::home, *index, 0}, all_heads(of),
                  home_indices(of));
}

std::int64_t Planning::width(std::string_view name) const {
  const Carried* const carried = find_carried(name);
  return carried == nullptr ? 1 : size_of(carried->width, division());
}

Address Planning::allocate(const plan::TensorInfo& tensor) {
  const std::int64_t elements = last_offset(tensor.dims, tensor.strides).value_or(0) + 1;
  return memory.add(elements * static_cast<std::int64_t>(size_of(tensor.dtype)));
}

Place Planning::of_message(const Message& message, const Payload& payload) const {
  return dense({{},
                payload.dtype,
                division().batches,
                heads(message.of, message.key_heads),
                message.indices,
                width(payload.name),
                {}});
}

Result<Place> Planning::of_part(std::size_t part, const plan::TensorInfo& tensor,
                                Divided of) const {
  const Interval heads = own_heads(of);
  const Intervals& rows = indices(of, program().parts[part]);
  const std::vector<std::int64_t>& dims = tensor.dims;
  const std::int64_t width = this->width(tensor.name);
  const bool has_width = dims.size() == 4;
  if (dims.size() < 3 || dims.size() > 4 || dims[0] != division().batches ||
      dims[1] != heads.size() || dims[2] != count(rows) || (has_width ? dims[3] : 1) != width ||
      (has_width && width > 1 && tensor.strides[3] != 1)) {
    return damaged(fmt::format(
        "tensor '{}' of the plan `{}` has other dims than part {} of rank {}", tensor.name,
        is_backward() ? program().parts[part].backward : program().parts[part].forward, part,
        program().rank));
  }
  return place_of(tensor, {}, heads, rows);
}

Copy Planning::copy(const Place& from, const Place& to, const Intervals& indices) {
  const Interval heads{std::max(from.heads.begin, to.heads.begin),
                       std::min(from.heads.end, to.heads.end)};
  Copy copy;
  copy.element_bytes = static_cast<std::int64_t>(size_of(to.dtype));
  copy.batches = to.batches;
  copy.heads = heads.size();
  copy.rows = count(indices);
  copy.width = to.width;
  copy.from_strides = from.strides, copy.to_strides = to.strides;
  const auto offset = [&](const Place& place, std::int64_t row) {
    return place.at.plus(
        ((heads.begin - place.heads.begin) * place.strides.head + row * place.strides.row) *
        copy.element_bytes);
  };
  const auto first = run_of(from.indices, indices), second = run_of(to.indices, indices);
  copy.from = offset(from, first && second ? *first : 0);
  copy.to = offset(to, first && second ? *second : 0);
  if (first && second) return copy;
  std::vector<std::int32_t> pairs;
  for (const Interval& each : indices) {
    // Within an interval both places are adjacent, unless either has a gap there, which it cannot:
    // both have all of the indices.
    const std::int64_t a = position(from.indices, each.begin), b = position(to.indices, each.begin);
    for (std::int64_t i = 0; i < each.size(); ++i) {
      pairs.push_back(static_cast<std::int32_t>(a + i));
      pairs.push_back(static_cast<std::int32_t>(b + i));
    }
  }
  copy.pairs = table.add(pairs);
  return copy;
}

std::vector<plan::TensorInfo> home_tensors(const Division& division, const Program& program,
                                           plan::Direction direction) {
  std::vector<plan::TensorInfo> tensors;
  const auto& whole = direction == plan::Direction::backward ? division.backward : division.forward;
  for (const WholeTensor& each : whole) {
    plan::TensorInfo tensor{each.name, each.role, each.dtype, each.dims, {}};
    if (each.divided != Divided::no)
      tensor.dims[2] = count(each.divided == Divided::rows ? program.rows : program.keys);
    tensor.strides = row_major_strides(tensor.dims);
    if (each.divided != Divided::no && tensor.dims.size() == 4) {
      const std::vector<std::int64_t>& d = tensor.dims;
      tensor.strides = {d[2] * d[1] * d[3], d[3], d[1] * d[3], 1};
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<Schedule> schedule_of(const ScheduleInputs& inputs) {
  Planning planning(inputs);
  ATTN_RETURN_IF_ERROR(plan_inputs(planning));
  ATTN_RETURN_IF_ERROR(plan_results(planning));
  ATTN_RETURN_IF_ERROR(plan_learned(planning));
  planning.schedule.memory_bytes = planning.memory.bytes();
  planning.schedule.table = planning.table.words();
  return std::move(planning.schedule);
}

}  // namespace attn::ranks
