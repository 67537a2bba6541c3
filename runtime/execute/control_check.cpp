#include "runtime/execute/control_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/binding_state.h"
#include "runtime/graph/listing.h"

namespace attn::execute {
namespace {

constexpr std::int64_t kMostBlocks = 1024;
constexpr std::int64_t kMostPages = std::numeric_limits<std::int32_t>::max();

bool is_table(const plan::TensorInfo& control) { return control.dims.size() == 2; }

std::string named(const plan::TensorInfo& tensor) {
  return fmt::format("tensor '{}'", escaped(tensor.name));
}

}  // namespace

// Adds the parts in the order in which the first fault is looked for: what says how many rows there
// are comes before what is in use of them.
struct ControlCheck::Adder {
  ControlCheck& check;
  const plan::Program& program;
  std::span<void* const> tensors;
  std::span<const Leading> leading;

  const plan::TensorInfo* find(const std::string& name) const {
    const auto found = std::ranges::find(program.tensors, name, &plan::TensorInfo::name);
    return found == program.tensors.end() ? nullptr : &*found;
  }
  std::size_t index(const plan::TensorInfo& tensor) const {
    return static_cast<std::size_t>(&tensor - program.tensors.data());
  }
  const int* address(const plan::TensorInfo& tensor) const {
    return static_cast<const int*>(tensors[index(tensor)]);
  }

  void add(const operations::ControlPart& part, const Part& about, std::int64_t sequences) const {
    check.parameters.parts[check.parts.size()] = part;
    check.parts.push_back(about);
    check.parameters.count = static_cast<int>(check.parts.size());
    check.parameters.sequences = static_cast<int>(sequences);
  }

  void add_lengths(const char* name, const char* what, std::int64_t most) const {
    const plan::TensorInfo* found = find(name);
    if (found == nullptr) return;
    add({.lengths = address(*found), .most = most}, {found, nullptr, what}, found->dims[0]);
  }

  void add_cumulative(const plan::TensorInfo& of, const char* what, std::int64_t most) const {
    const plan::TensorInfo* by = of.addressed_by.empty() ? nullptr : find(of.addressed_by);
    if (by == nullptr || is_table(*by)) return;
    const bool known = std::ranges::find(check.parts, by, &Part::tensor) != check.parts.end();
    if (known) return;
    add({.lengths = address(*by), .most = most, .cumulative = 1}, {by, nullptr, what},
        by->dims[0] - 1);
  }

  void add_pool(const plan::TensorInfo& pool, std::int64_t most) const {
    const plan::TensorInfo* table = pool.addressed_by.empty() ? nullptr : find(pool.addressed_by);
    if (table == nullptr || !is_table(*table)) return;
    const plan::TensorInfo* lengths = find("lengths_kv");
    const std::int64_t columns = table->dims[1], page_size = pool.dims[2];
    add({.lengths = lengths == nullptr ? nullptr : address(*lengths),
         .table = address(*table),
         .table_row = leading[index(*table)].stride,
         .most = std::min(most, columns * page_size),
         .columns = columns,
         .page_size = static_cast<int>(page_size),
         .pages = static_cast<int>(std::min(kMostPages, leading[index(pool)].extent))},
        {table, &pool, "keys"}, table->dims[0]);
  }
};

ControlCheck::ControlCheck(const plan::Program& program, const Capacity& capacity,
                           std::span<void* const> tensors, std::span<const Leading> leading) {
  const Adder adder{*this, program, tensors, leading};
  adder.add_lengths("lengths_q", "rows", capacity.rows);
  adder.add_lengths("lengths_kv", "keys", capacity.keys);
  for (const auto& [role, what, most] :
       {std::tuple(plan::TensorRole::query, "rows", capacity.rows),
        std::tuple(plan::TensorRole::key, "keys", capacity.keys),
        std::tuple(plan::TensorRole::value, "keys", capacity.keys)}) {
    for (const plan::TensorInfo& tensor : program.tensors) {
      if (tensor.role != role) continue;
      adder.add_cumulative(tensor, what, most);
      if (role != plan::TensorRole::query) adder.add_pool(tensor, most);
    }
  }
  parameters.blocks =
      static_cast<int>(std::clamp<std::int64_t>(parameters.sequences, 1, kMostBlocks));
}

Error ControlCheck::describe(std::uint64_t found, const Element& element) const {
  const std::uint64_t fault = ~found >> operations::kControlIndexBits;
  const auto index =
      static_cast<std::int64_t>(~found & ((std::uint64_t{1} << operations::kControlIndexBits) - 1));
  const std::size_t number = fault / operations::kControlKinds;
  const Part& about = parts[number];
  const operations::ControlPart& part = parameters.parts[number];
  const auto value = [&](std::int64_t at) {
    const Result<std::int32_t> read = element(*about.tensor, at);
    return read.ok() ? std::to_string(*read) : std::string("a number that cannot be read");
  };
  const auto wrong = [](std::string text) { return Error{ErrorCode::binding, std::move(text)}; };
  if (fault % operations::kControlKinds == operations::kOutside) {
    const std::int64_t row = index / part.columns, column = index % part.columns;
    return wrong(fmt::format("{} has page {} at [{}, {}], but '{}' has {} pages",
                             named(*about.tensor), value(row * part.table_row + column), row,
                             column, escaped(about.pool->name), part.pages));
  }
  if (part.cumulative == 0) {
    return wrong(fmt::format("{} has {} at {}, but a sequence has 0 to {} {}", named(*about.tensor),
                             value(index), index, part.most, about.what));
  }
  const std::string span = fmt::format("{} goes from {} to {} at {}", named(*about.tensor),
                                       value(index), value(index + 1), index);
  if (fault % operations::kControlKinds == operations::kFalls) {
    return wrong(span + ", but it must be 0 or more and never fall");
  }
  return wrong(fmt::format("{}, but a sequence has at most {} {}", span, part.most, about.what));
}

Status Binding::check(void* stream) const {
  const State& state = *state_;
  Runtime& runtime = *state.owner->runtime;
  const cuda::Device& device = runtime.device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  ATTN_ASSIGN(const bool is_captured, cuda::is_capturing(device, stream));
  if (is_captured) {
    return Status(ErrorCode::binding,
                  "a binding cannot be checked while its stream is captured into a CUDA graph");
  }
  ControlCheck check(state.owner->program, {state.owner->rows, state.owner->keys}, state.tensors,
                     state.leading);
  if (check.parts.empty()) return {};
  std::uint64_t found = 0;
  ATTN_ASSIGN(cuda::DeviceBuffer word,
              cuda::DeviceBuffer::allocate(device, sizeof found, runtime.allocator()));
  ATTN_RETURN_IF_ERROR(word.fill(0));
  check.parameters.found = static_cast<unsigned long long*>(word.data());
  if (state.schedule != nullptr) check.parameters.options = state.schedule->built_options();
  ATTN_RETURN_IF_ERROR(runtime.operations().check(check.parameters, stream));
  const auto read = [&](const void* from, auto& to) {
    return cuda::download(device, from, std::as_writable_bytes(std::span(&to, 1)), stream);
  };
  ATTN_RETURN_IF_ERROR(read(word.data(), found));
  if (found == 0) return {};
  return check.describe(
      found, [&](const plan::TensorInfo& tensor, std::int64_t at) -> Result<std::int32_t> {
        std::int32_t value = 0;
        const auto index = static_cast<std::size_t>(&tensor - state.owner->program.tensors.data());
        ATTN_RETURN_IF_ERROR(
            read(static_cast<const std::int32_t*>(state.tensors[index]) + at, value));
        return value;
      });
}

}  // namespace attn::execute
