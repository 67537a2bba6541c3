// Builders compile missing plans for pickers; the runtime itself has no compiler.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/bundle.h"

namespace attn::picker {

// What to compile: a spec with the bindings of a plan.
struct BuildRequest {
  std::string spec_text;  // DSL, or JSON if it begins with '{'; imports are inlined
  std::map<std::string, std::string> bindings;
};

// Returns the plans of one shape: a forward, or a training pair. Called from any thread, possibly
// several at once. Should return soon after a stop is requested. An application that links the
// compiler may call attn::driver here.
using Builder =
    std::function<Result<plan::Bundle>(const BuildRequest& request, const std::stop_token& stop)>;

struct AttncOptions {
  std::vector<std::string> command = {"attnc"};  // searched in PATH if it has no slash
  std::optional<plan::Target> target;            // a plan's target; nullopt: the local GPU
  std::string cudnn_folder;                      // --cudnn, if not empty
  // Extra arguments of `attnc compile`: --allow-unfused, or --direction both without a `grad`
  // clause.
  std::vector<std::string> arguments;
  // Time limit of one build, after which attnc is killed. attnc also exits when this process dies,
  // and soon after this time in any case.
  std::chrono::seconds timeout{300};
};

// Runs `attnc compile` as a child process and loads the plans that it writes. A stop request kills
// it. Uses a temporary folder under $TMPDIR, and removes those that killed processes left there.
// Errors: those that attnc reports, with its code; `worker` if it cannot be started, dies, times
// out or is stopped; io.
Builder attnc_builder(AttncOptions options = {});

}  // namespace attn::picker
