#include "runtime/ranks/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/base/check.h"
#include "runtime/ranks/exchanges.h"

namespace attn::ranks {
namespace {

using plan::Direction;
using plan::TensorRole;

struct Known {
  std::string_view name;
  Direction direction;
  TensorRole role;
  bool always;        // else it may be missing
  bool softmax_only;  // not with sigmoid
};

constexpr Known kKnown[] = {
    {"q", Direction::forward, TensorRole::query, true, false},
    {"k", Direction::forward, TensorRole::key, true, false},
    {"v", Direction::forward, TensorRole::value, true, false},
    {"o", Direction::forward, TensorRole::output, true, false},
    {"lse", Direction::forward, TensorRole::stats, true, true},
    {"max", Direction::forward, TensorRole::stats, false, true},
    {"sum_exp", Direction::forward, TensorRole::stats, false, true},
    {"max_with_sink", Direction::forward, TensorRole::stats, false, true},
    {"sum_exp_with_sink", Direction::forward, TensorRole::stats, false, true},
    {"lse_without_sink", Direction::forward, TensorRole::stats, false, true},
    {"q", Direction::backward, TensorRole::query, true, false},
    {"k", Direction::backward, TensorRole::key, true, false},
    {"v", Direction::backward, TensorRole::value, true, false},
    {"o", Direction::backward, TensorRole::saved, true, true},
    {"lse", Direction::backward, TensorRole::saved, true, true},
    {"do", Direction::backward, TensorRole::cotangent, true, false},
    {"dlse", Direction::backward, TensorRole::cotangent, false, true},
    {"dq", Direction::backward, TensorRole::gradient, false, false},
    {"dk", Direction::backward, TensorRole::gradient, false, false},
    {"dv", Direction::backward, TensorRole::gradient, false, false}};

const Known* find_known(std::string_view name, Direction direction) {
  const auto* found = std::ranges::find_if(kKnown, [&](const Known& known) {
    return known.name == name && known.direction == direction;
  });
  return found == std::end(kKnown) ? nullptr : found;
}

DType dtype_of(const Known& known, const Division& division) {
  const bool is_f32 = find_carried(known.name)->width == Width::one;
  return is_f32 ? DType::f32 : division.dtype;
}

// The gradient of a learned tensor.
bool is_learned(const WholeTensor& tensor, const std::vector<WholeTensor>& tensors) {
  if (tensor.role != TensorRole::gradient || !tensor.name.starts_with("d_")) return false;
  const WholeTensor* const of = find(tensors, std::string_view(tensor.name).substr(2));
  return of != nullptr && of->dims == tensor.dims && can_merge(tensor.dtype);
}

bool is_whole(const WholeTensor& tensor, const std::vector<WholeTensor>& tensors) {
  if (tensor.divided != Divided::no) return false;
  return tensor.role == TensorRole::captured || tensor.role == TensorRole::control ||
         is_learned(tensor, tensors);
}

}  // namespace

const WholeTensor* find(const std::vector<WholeTensor>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &WholeTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

WholeTensor divided_tensor(std::string_view name, TensorRole role, DType dtype,
                           const Division& division) {
  const Carried* const carried = find_carried(name);
  ATTN_CHECK(carried != nullptr, "not a tensor of rows or keys");
  const bool of_rows = carried->of == Divided::rows;
  WholeTensor tensor{std::string(name), role, dtype, {}, carried->of};
  tensor.dims = {division.batches, of_rows ? division.query_heads : division.key_heads,
                 of_rows ? division.rows : division.keys};
  if (carried->width != Width::one) tensor.dims.push_back(size_of(carried->width, division));
  return tensor;
}

bool can_merge(DType type) {
  return type == DType::f16 || type == DType::bf16 || type == DType::f32;
}

std::string fault_of(const Division& division, Direction direction) {
  const std::vector<WholeTensor>& tensors =
      direction == Direction::forward ? division.forward : division.backward;
  if (tensors.empty()) return "";
  std::set<std::string_view> names;
  for (const WholeTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) return fmt::format("has `{}` twice", tensor.name);
    const Known* const known = find_known(tensor.name, direction);
    const bool good = known == nullptr
                          ? is_whole(tensor, tensors)
                          : tensor == divided_tensor(tensor.name, known->role,
                                                     dtype_of(*known, division), division) &&
                                !(known->softmax_only && division.sigmoid);
    if (!good) return fmt::format("has a tensor `{}` that it cannot have", tensor.name);
  }
  for (const Known& known : kKnown) {
    const bool needed = known.always && !(known.softmax_only && division.sigmoid);
    if (needed && known.direction == direction && !names.contains(known.name))
      return fmt::format("lacks the tensor `{}`", known.name);
  }
  const bool cleared = direction == Direction::forward && division.clears_padding;
  if (!cleared) return "";
  const WholeTensor* const lengths = find(tensors, kLengthsQ);
  const bool good = lengths != nullptr && lengths->dtype == DType::i32 &&
                    lengths->dims == std::vector<std::int64_t>{division.batches};
  return good ? "" : "lacks the lengths of rows that are to be cleared";
}

}  // namespace attn::ranks
