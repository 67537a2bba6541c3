// What the cache of plans remembers of a search, and how plans are taken from it.
#pragma once

#include <set>

#include "compiler/driver/build.h"

namespace attn::driver {

// Version of the NVRTC that compiles the program; empty without kernels.
Result<std::string> nvrtc_version(const plan::Program& program, const CompileOptions& options);

class Remembered {
 public:
  // The options must outlive this.
  explicit Remembered(const CompileOptions& options);

  // Begins the search with the program that the cache remembers as the fastest of all that were
  // measured, or as the first that could be built: what was refused before it is not compiled
  // again. Errors: those of Search::next.
  Status begin(planner::Search& search);

  // plan::Alternative::signature of a program that is tried; empty without a cache.
  std::string signature_of(const plan::Program& program) const;

  // compile_steps, or a cached plan with the words of this one. What was tried before it is
  // remembered with the plan, if that is lasting.
  Status take_or_compile(plan::Plan& plan, Limits& limits, bool lasting) const;

  // Keeps a plan whose programs were measured. Errors: those of FileStore::save.
  Status keep(const plan::Plan& plan) const;

 private:
  // The choice of the plan that the cache has of the candidate; empty if it has none.
  std::vector<plan::Alternative> choice_of(const planner::Candidate& candidate);
  bool would_run_again(const std::vector<plan::Alternative>& choice) const;

  const CompileOptions& options_;
  const CachedPlans cached_;
  std::set<std::string> signatures_;          // of all programs that may be tried
  std::set<const engines::Engine*> engines_;  // of theirs
};

}  // namespace attn::driver
