#include "runtime/execute/arguments.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/execute/checks.h"
#include "runtime/plan/program.h"

namespace attn::execute {

namespace {

// The item of that name, added if missing.
template <typename Item>
Item& item_of(std::vector<Item>& items, const std::string& name) {
  const auto found = std::ranges::find(items, name, &Item::name);
  if (found != items.end()) return *found;
  Item& added = items.emplace_back();
  added.name = name;
  return added;
}

}  // namespace

Arguments& Arguments::tensor(std::string name, TensorView view) {
  item_of(tensors_, name).view = std::move(view);
  return *this;
}

Arguments& Arguments::address(const std::string& name, void* address) {
  const auto count = tensors_.size();
  TensorView& view = item_of(tensors_, name).view;
  if (tensors_.size() > count) view.as_planned = true;
  view.data = address;
  return *this;
}

Arguments& Arguments::scalar(std::string name, double value) {
  return scalar(std::move(name), DType::f32, value);
}

Arguments& Arguments::scalar(std::string name, std::int32_t value) {
  return scalar(std::move(name), DType::i32, value);
}

Arguments& Arguments::scalar(std::string name, DType dtype, double value) {
  Scalar& scalar = item_of(scalars_, name);
  scalar.dtype = dtype;
  scalar.value = value;
  return *this;
}

plan::TensorInfo bound_tensor(const plan::Program& program, const plan::TensorInfo& tensor,
                              const TensorView& view) {
  plan::TensorInfo bound = tensor;
  bound.dims = view.dims;
  for (std::size_t axis = 0; axis < bound.dims.size(); ++axis) {
    if (has_stride(program, bound, axis)) bound.strides[axis] = view.strides[axis];
  }
  return bound;
}

std::vector<plan::TensorInfo> bound_tensors(const plan::Program& program,
                                            const Arguments& arguments) {
  std::vector<plan::TensorInfo> bound;
  for (const plan::TensorInfo& tensor : program.tensors) {
    if (!tensor.bound_strides) continue;
    const auto given =
        std::ranges::find(arguments.tensors(), tensor.name, &Arguments::Tensor::name);
    const bool is_planned = given == arguments.tensors().end() || given->view.as_planned;
    bound.push_back(is_planned ? tensor : bound_tensor(program, tensor, given->view));
  }
  return bound;
}

std::vector<Leading> leading_of(const plan::Program& program, const Arguments& arguments) {
  std::vector<Leading> leading;
  for (const plan::TensorInfo& info : program.tensors) {
    Leading& of = leading.emplace_back();
    if (info.dims.empty()) continue;
    of = {info.dims[0], info.strides[0]};
    for (const Arguments::Tensor& given : arguments.tensors()) {
      if (given.name == info.name && !given.view.as_planned)
        of = {given.view.dims[0], given.view.strides[0]};
    }
  }
  return leading;
}

std::vector<void*> addresses_of(const plan::Program& program, const Arguments& arguments) {
  std::vector<void*> addresses;
  for (const plan::TensorInfo& info : program.tensors) {
    for (const Arguments::Tensor& tensor : arguments.tensors()) {
      if (tensor.name == info.name) addresses.push_back(tensor.view.data);
    }
  }
  ATTN_CHECK(addresses.size() == program.tensors.size(), "the arguments must fit the program");
  return addresses;
}

}  // namespace attn::execute
