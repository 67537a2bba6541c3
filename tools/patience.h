// Long work on the CPU, of the reference or to make inputs: says how long it takes, refuses hours
// of it, shows its progress.
#pragma once

#include <functional>
#include <string>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "tools/console.h"
#include "tools/inputs.h"

namespace attn::tools {

// Scores of these sizes, B * Hq * Sq * Skv.
double scores_of(const ir::Dims& dims);

// What is done: with the reference, `times` its own work, of which its own comes first.
struct LongWork {
  std::string name{"reference"};
  double times = 1;
  std::string counted{"scores"};
  // How many of them sizes have: what the time is proportional to.
  std::function<double(const ir::Dims&)> count{scores_of};
};

class Patience {
 public:
  // With `yes`, nothing takes too long. `attention` must outlive it.
  Patience(const ir::Attention& attention, bool yes, LongWork work = {});

  // Says how long work of so many seconds takes; of the reference's own, if `times` is not 1.
  // Error: invalid_argument: it would take more than an hour. The notes say which sizes do not.
  Status begin(double seconds);

  // Calls `begin`, and refers to this.
  reference::Observer observer();

  // Says that a share (0 to 1) of the work after the reference's own is done. Thread-safe.
  void advance(double share);

 private:
  void show(double share, const char* of);

  const ir::Attention& attention_;
  const bool yes_;
  const LongWork work_;
  Progress progress_;
  bool shows_ = false;  // short work needs no progress
};

// Sizes that take a minute at most, if the attention's take `seconds`: "--bind B=1 --bind Sq=2048
// --bind Skv=2048 takes about 40 s".
std::string shorter(const ir::Attention& attention, double seconds, const LongWork& work = {});

// Says how long make_inputs takes if an element takes so many seconds. Error: that of
// Patience::begin.
Status tell_inputs(const ir::Attention& attention, const InputTexts& texts, Needs needs, bool yes,
                   double seconds_of_element);

}  // namespace attn::tools
