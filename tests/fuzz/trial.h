// One spec through the compiler, as its worker runs cuDNN: in a process of its own, against the
// driver library without a device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cudnn/library.h"
#include "runtime/plan/plan.h"

namespace attn::fuzz {

enum class Ending : std::uint8_t {
  served,
  refused_by_rule,   // by attnc, before cuDNN is asked
  refused_by_cudnn,  // a graph that lowering should not emit
  invalid,           // the front end finds an error, or lowering one that sizes show
  failed,            // any other error
  died,              // cuDNN ended the process
  timed_out,
  crashed,  // attnc ended the process
};
std::string_view to_string(Ending ending);

struct Outcome {
  Ending ending = Ending::served;
  std::string reason;  // one line; of equal reasons the same
};

struct TrialOptions {
  plan::Target target;
  std::string cudnn_folder;
  bool only_offer = false;  // ask cuDNN's heuristics, do not compile
  bool only_cudnn = false;  // leave out attnc's own kernels
  std::chrono::seconds timeout{120};
};

// cuDNN loaded once; every spec is compiled by a child that inherits it. Not for processes with
// more than one thread.
class Compiler {
 public:
  // Loads the driver library without a device, and cuDNN; compiles one graph, so that everything is
  // loaded. Errors: those of cudnn::Library::load, and worker.
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

// Those of the graphs of a spec that was served (tests/support/combinations.h).
std::set<std::string> combinations_of(const std::string& spec);

}  // namespace attn::fuzz
