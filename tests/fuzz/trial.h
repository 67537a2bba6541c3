// Compiles one spec in a child process with the driver library that reports no device, as the
// compile worker does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "compiler/target/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/cudnn/library.h"
#include "runtime/plan/plan.h"

namespace attn::fuzz {

enum class Ending : std::uint8_t {
  served,
  refused_by_rule,   // by attnc, before cuDNN is asked
  refused_by_cudnn,  // lowering emitted a graph that cuDNN refuses
  invalid,           // an error in the spec, found by the front end or by lowering
  failed,            // any other error
  died,              // cuDNN ended the process
  timed_out,
  crashed,  // attnc ended the process
};
std::string_view to_string(Ending ending);

struct Outcome {
  Ending ending = Ending::served;
  std::string reason;  // one line, without names and numbers, so that equal reasons compare equal
};

struct TrialOptions {
  plan::Target target;
  std::string cudnn_folder;
  std::string lowering{"cudnn"};  // or that of planner::strategy_names() or engine_names()
  bool only_offer = false;        // only query cuDNN's heuristics, do not compile
  bool only_cudnn = false;        // do not compile attnc's kernels
  bool backward = false;          // compile the backward, not the forward
  target::Rewrites rewrites;
  std::chrono::seconds timeout{120};
};

// Loads cuDNN once; each spec is compiled in a forked child that inherits it. Only for
// single-threaded processes.
class Compiler {
 public:
  // Loads the driver library without a device, and cuDNN. Compiles one graph, so that all libraries
  // are loaded. Errors: those of cudnn::Library::load; worker.
  static Result<Compiler> load(TrialOptions options);

  Outcome compile(const std::string& spec) const;

 private:
  Compiler(std::shared_ptr<const cudnn::Library> library, TrialOptions options)
      : library_(std::move(library)), options_(std::move(options)) {}

  Outcome in_this_process(const std::string& spec, int report) const;
  Status compile_steps(const plan::Program& program) const;

  std::shared_ptr<const cudnn::Library> library_;
  TrialOptions options_;
};

// The combinations in the graphs of a spec that was served with this lowering
// (tests/support/combinations.h).
std::set<std::string> combinations_of(const std::string& spec, const std::string& lowering);

}  // namespace attn::fuzz
