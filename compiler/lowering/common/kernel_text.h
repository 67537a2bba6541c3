// Builds derive steps from text, for kernels without IR expressions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/program.h"

namespace attn::lowering {

// The C type of an element; 16-bit floats are held as bits.
std::string c_type(DType dtype);

class KernelText {
 public:
  // Adds a tensor that the kernel reads; returns its name in the text.
  std::string read(const std::string& tensor, DType dtype);
  std::string read(const plan::TensorOperand& tensor, DType dtype);

  // Adds a tensor that the kernel writes; returns its name in the text. `meaning` is for listings.
  std::string write(const std::string& tensor, DType dtype, std::string meaning);

  // Adds a tensor that the kernel fills: `statement` runs for each `i` below `count`; `out` is the
  // tensor.
  void make(const std::string& tensor, DType dtype, std::int64_t count, std::string meaning,
            const std::string& statement);

  // Adds statements for thread `i` after those so far, or text before the kernel.
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
