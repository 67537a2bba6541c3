// A strategy: one way to compute an attention, which plans and lowers it. Its programs are made of
// cuDNN plans and kernels (runtime/plan/program.h), which are compiled, stored, loaded and executed
// alike for every engine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/engines/shared/coverage.h"
#include "compiler/engines/shared/subject.h"
#include "compiler/nvrtc/assembly.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// How many times as long a program counts whose kernels were never measured on its GPU, nor are of
// a library that was made for it.
inline constexpr double kUnmeasured = 1.15;

struct Lowered {
  plan::Program program;
  double predicted_ms = 0;
  std::vector<std::string> parts{};  // of the mask (engines/shared/partition.h), to be printed
  // Limits for kernels of kernel steps; without a value, the assembler may do what it likes.
  std::optional<nvrtc::KernelLimits> limits{};
  // What the attention kernels of a forward compute; no two of them show the same score.
  std::vector<Coverage> kernels{};
  bool unmeasured = false;  // it counts kUnmeasured times as long beside other programs
};

struct Strategy {
  enum class Kind : std::uint8_t {
    primary,      // reported in the error when it cannot serve
    alternative,  // another form of a primary one: reported only when asked for by name
    slow,         // taken last, and only when allowed (--allow-unfused) or named
  };

  std::string_view name;  // as in --strategy NAME
  std::string_view what;  // one line, to be printed
  Kind kind = Kind::primary;

  // Milliseconds that it takes at least, without lowering. Errors: `unsupported`, with the place
  // and what would work, when the strategy cannot express the attention; any other error holds for
  // every strategy.
  Result<double> (*bound)(Subject& subject) = nullptr;
  // Errors: the same. The predicted time is not below the bound.
  Result<Lowered> (*lower)(Subject& subject) = nullptr;
  // The next program after `refused` ones broke the kernel limits: that of `lower`, and those of
  // calls with a smaller number. Null: there is none. Errors: unsupported, when there is none.
  Result<Lowered> (*lower_again)(Subject& subject, std::size_t refused) = nullptr;

  // Whether attnc's own kernels compute all of the attention. They visit the blocks that masks
  // show, and draw the numbers of a part of an attention as the whole does.
  bool own_kernels = false;
  // What a launch of a kernel does, in one line; empty if the step is not of this strategy. May be
  // null.
  std::string (*what_of_launch)(const plan::KernelStep& step, const plan::Launch& launch) = nullptr;
};

struct Engine {
  std::string_view name;
  std::string_view what;                 // one line, to be printed
  std::span<const Strategy> strategies;  // first those to take where predicted times are equal
};

}  // namespace attn::engines
