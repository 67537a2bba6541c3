// Gradients of learned tensors: sums over a rank's parts in f32, then over all ranks.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/extent.h"
#include "runtime/ranks/merge_rows.h"
#include "runtime/ranks/planning.h"

namespace attn::ranks {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// A dense tensor as rows of a few elements.
Slot rows_of(Address at, std::int64_t width) { return {at, {0, 0, width}}; }

MergePlace place_at(Address at, DType dtype, std::int64_t width) {
  MergePlace place;
  place.slots[0] = rows_of(at, width);
  place.dtype = dtype;
  place.heads = {0, 1};
  return place;
}

// All elements of places, added up.
class Sum {
 public:
  Sum(Planning& planning, std::int64_t elements) : planning_(planning) {
    constexpr std::int64_t kWidth = 8;
    merge_.width = elements % kWidth == 0 ? kWidth : 1;
    merge_.rows = elements / merge_.width;
    merge_.heads = {0, 1};
    merge_.uniform = true;
  }

  void add(Address at, DType dtype) { merge_.places.push_back(place_at(at, dtype, merge_.width)); }

  // The sum of all that was added, into the caller's tensor.
  Merge to_home(Address at, DType dtype) {
    merge_.home = place_at(at, dtype, merge_.width);
    return finished(kHome, merge_.places.size());
  }
  // Merges into memory.
  Merge to_memory(Address at) {
    const std::size_t sources = merge_.places.size();
    add(at, DType::f32);
    return finished(kFirstPlace + static_cast<std::int32_t>(sources), sources);
  }

 private:
  Merge finished(std::int32_t to, std::size_t sources) {
    std::vector<std::int32_t> entries = {to, 0};
    for (std::size_t i = 0; i < sources; ++i) {
      entries.push_back(kFirstPlace + static_cast<std::int32_t>(i));
      entries.push_back(0);
    }
    merge_.first = planning_.table.add({0, static_cast<std::int32_t>(sources + 1)});
    merge_.entries = planning_.table.add(entries);
    return merge_;
  }

  Planning& planning_;
  Merge merge_;
};

// The place of the part's gradient; nothing if it has none.
Result<Address> gradient_of(const Planning& planning, std::size_t part, const WholeTensor& whole) {
  if (planning.plan(part) == nullptr) return Address();
  const std::vector<plan::TensorInfo>& tensors = planning.plan(part)->tensors;
  const auto found = std::ranges::find(tensors, whole.name, &plan::TensorInfo::name);
  if (found == tensors.end()) return Address();
  if (found->dims != whole.dims || found->strides != row_major_strides(whole.dims) ||
      found->dtype != whole.dtype)
    return damaged(fmt::format("a plan's tensor '{}' has other dims", whole.name));
  return planning.schedule.parts[part][static_cast<std::size_t>(found - tensors.begin())];
}

}  // namespace

Status plan_learned(Planning& planning) {
  Schedule& schedule = planning.schedule;
  struct Learned {
    std::size_t index;
    std::int64_t elements, offset;
  };
  std::vector<Learned> all;
  constexpr std::int64_t kAligned = 64;  // floats
  for (std::size_t i = 0; i < planning.tensors().size(); ++i) {
    const WholeTensor& whole = planning.tensors()[i];
    if (whole.role != plan::TensorRole::gradient || whole.divided != Divided::no) continue;
    const auto elements = element_count(whole.dims);
    if (!elements) return damaged(fmt::format("tensor '{}' has dims out of range", whole.name));
    all.push_back({i, *elements, schedule.sum_count});
    schedule.sum_count += (*elements + kAligned - 1) / kAligned * kAligned;
  }
  if (all.empty()) return {};
  schedule.sum = planning.memory.add(schedule.sum_count * kFloat);
  for (const Learned& each : all) {
    const WholeTensor& whole = planning.tensors()[each.index];
    const Address at = schedule.sum.plus(each.offset * kFloat);
    Sum sum(planning, each.elements);
    for (std::size_t part = 0; part < planning.parts(); ++part) {
      ATTN_ASSIGN(const Address of_part, gradient_of(planning, part, whole));
      if (of_part) sum.add(of_part, whole.dtype);
    }
    schedule.sums.push_back(sum.to_memory(at));
    Sum home(planning, each.elements);
    home.add(at, DType::f32);
    schedule.learned.push_back(home.to_home({Address::In::home, each.index, 0}, whole.dtype));
  }
  return {};
}

}  // namespace attn::ranks
