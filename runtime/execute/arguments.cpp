#include "runtime/execute/arguments.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/plan/program.h"

namespace attn::execute {

Arguments& Arguments::tensor(std::string name, TensorView view) {
  tensors_.push_back({std::move(name), std::move(view)});
  return *this;
}

Arguments& Arguments::scalar(std::string name, double value) {
  return scalar(std::move(name), DType::f32, value);
}

Arguments& Arguments::scalar(std::string name, std::int32_t value) {
  return scalar(std::move(name), DType::i32, value);
}

Arguments& Arguments::scalar(std::string name, DType dtype, double value) {
  scalars_.push_back({std::move(name), dtype, value});
  return *this;
}

std::vector<void*> addresses_of(const plan::Program& program, const Arguments& arguments) {
  std::vector<void*> addresses;
  for (const plan::TensorInfo& info : program.tensors) {
    for (const Arguments::Tensor& tensor : arguments.tensors()) {
      if (tensor.name == info.name) addresses.push_back(tensor.view.data);
    }
  }
  ATTN_CHECK(addresses.size() == program.tensors.size(), "arguments that fit have every tensor");
  return addresses;
}

}  // namespace attn::execute
