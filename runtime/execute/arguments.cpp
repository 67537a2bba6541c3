#include "runtime/execute/arguments.h"

#include <utility>

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

}  // namespace attn::execute
