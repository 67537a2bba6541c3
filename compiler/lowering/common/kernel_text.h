// A derive step written piece by piece: kernels that need no expression of the IR.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/program.h"

namespace attn::lowering {

// The C type that holds an element: of 16-bit floats their bits.
std::string c_type(DType dtype);

class KernelText {
 public:
  // A tensor that the kernel reads; the name by which its text does.
  std::string read(const std::string& tensor, DType dtype);
  std::string read(const plan::TensorOperand& tensor, DType dtype);

  // One that it writes, likewise.
  std::string write(const std::string& tensor, DType dtype, std::string meaning);

  // A tensor that it makes: `statement` is run for each `i` below `count`, `out` is the tensor.
  void make(const std::string& tensor, DType dtype, std::int64_t count, std::string meaning,
            const std::string& statement);

  // Statements about thread `i`, after those for what is made. `before` is text before the kernel.
  void add(const std::string& statements) { body_ += statements; }
  void include(const std::string& before) { before_ += before; }

  bool empty() const { return step_.outputs.empty(); }
  plan::DeriveStep finish(bool once) &&;

 private:
  plan::DeriveStep step_;
  std::map<std::string, std::string> names_;   // of inputs
  std::vector<std::string> outputs_, inputs_;  // parameters
  std::string before_, body_;
};

}  // namespace attn::lowering
