// Long work of the CPU reference: says how long it takes, refuses hours of it, shows its progress.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "tools/console.h"

namespace attn::tools {

// What is done with the reference: `times` its own work, of which its own comes first.
struct LongWork {
  std::string name{"reference"};
  double times = 1;
};

class Patience {
 public:
  // With `yes`, nothing takes too long. `attention` must outlive it.
  Patience(const ir::Attention& attention, bool yes, LongWork work = {});

  // Refers to this. Its error is invalid_argument: the work would take more than an hour. The notes
  // say which sizes do not.
  reference::Observer observer();

  // Says that a share (0 to 1) of the work after the reference's own is done. Thread-safe.
  void advance(double share);

 private:
  Status begin(double seconds);
  void show(double share, const char* of);

  const ir::Attention& attention_;
  const bool yes_;
  const LongWork work_;
  Progress progress_;
  bool shows_ = false;  // short work needs no progress
};

// Sizes that take a minute at most, if the attention's take `seconds`: "--bind B=1 --bind Sq=2048
// --bind Skv=2048 takes about 40 s".
std::string shorter(const ir::Attention& attention, double seconds);

}  // namespace attn::tools
