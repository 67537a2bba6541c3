// Long work of the CPU reference: says how long it takes, refuses hours of it, shows its progress.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "tools/console.h"

namespace attn::tools {

class Patience {
 public:
  // With `yes`, nothing takes too long. `attention` must outlive it.
  Patience(const ir::Attention& attention, bool yes);

  // Refers to this. Its error is invalid_argument: the work would take more than an hour. The notes
  // say which sizes do not.
  reference::Observer observer();

 private:
  Status begin(double seconds);

  const ir::Attention& attention_;
  const bool yes_;
  Progress progress_;
  bool shows_ = false;  // short work needs no progress
};

// Sizes that take a minute at most, if the attention's take `seconds`: "--bind B=1 --bind Sq=2048
// --bind Skv=2048 takes about 40 s".
std::string shorter(const ir::Attention& attention, double seconds);

}  // namespace attn::tools
