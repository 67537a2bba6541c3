// What a caller gives an executable to work on: tensors and scalars by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::plan {
struct Program;
}

namespace attn::execute {

// Device memory of the caller's, described as the plan describes its tensors: dims in logical order
// (q and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse [B,Hq,Sq], captured as declared), strides in
// elements. Owns nothing.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  bool as_planned = false;  // dtype, dims and strides are those of the plan, and not said here
};

// Order does not matter, and what is given again replaces what was given before. Names are checked
// when the arguments are bound, not here.
class Arguments {
 public:
  struct Tensor {
    std::string name;
    TensorView view;
  };
  struct Scalar {
    std::string name;
    DType dtype = DType::f32;
    double value = 0;
  };

  Arguments& tensor(std::string name, TensorView view);
  // Other memory for a tensor that was given; without one, of the plan's dtype, dims and strides.
  Arguments& address(const std::string& name, void* address);
  Arguments& scalar(std::string name, double value);        // f32
  Arguments& scalar(std::string name, std::int32_t value);  // i32
  Arguments& scalar(std::string name, DType dtype, double value);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Scalar>& scalars() const { return scalars_; }

 private:
  std::vector<Tensor> tensors_;  // each name once
  std::vector<Scalar> scalars_;
};

// The addresses of arguments that fit the program, in the order of its tensors: what
// Binding::set_addresses takes.
std::vector<void*> addresses_of(const plan::Program& program, const Arguments& arguments);

}  // namespace attn::execute
