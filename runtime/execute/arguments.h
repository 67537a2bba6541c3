// Arguments of an executable: tensors and scalars by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::plan {
struct Program;
struct TensorInfo;
}  // namespace attn::plan

namespace attn::execute {

// Device memory owned by the caller, described like a tensor of the plan: dims in logical order (q
// and o [B,Hq,Sq,D], k and v [B,Hkv,Skv,D], lse [B,Hq,Sq], captured tensors as declared), strides
// in elements.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  bool as_planned = false;  // use the plan's dtype, dims and strides
};

// Tensors and scalars in any order; setting a name again replaces its value. Names are checked at
// binding, not here.
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
  // Sets only the address. A tensor that was not set before gets the plan's dtype, dims and
  // strides.
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

// A tensor of the program with bound strides, as it is bound; those that mean nothing are the
// plan's. The view must have dims and strides of the tensor's rank.
plan::TensorInfo bound_tensor(const plan::Program& program, const plan::TensorInfo& tensor,
                              const TensorView& view);
// All tensors with bound strides, as they are bound. The arguments must fit the program.
std::vector<plan::TensorInfo> bound_tensors(const plan::Program& program,
                                            const Arguments& arguments);

// The first dim and its stride, in elements, of a tensor as it is bound: pages of a pool, and how
// far apart rows of a page table are.
struct Leading {
  std::int64_t extent = 1;
  std::int64_t stride = 0;
};
// Those of all tensors, in the program's order. The arguments must fit the program.
std::vector<Leading> leading_of(const plan::Program& program, const Arguments& arguments);

// The addresses in the order of the program's tensors, for Binding::set_addresses. The arguments
// must fit the program.
std::vector<void*> addresses_of(const plan::Program& program, const Arguments& arguments);

}  // namespace attn::execute
