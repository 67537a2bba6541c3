// What makes plans for sizes that there is no plan for: the runtime has no compiler.
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

namespace attn::shapes {

// What is compiled: a spec at these bindings, those of a plan.
struct BuildRequest {
  std::string spec_text;  // DSL, or JSON when it begins with '{'; imports are written into it
  std::map<std::string, std::string> bindings;
};

// The plans of one shape: a forward, or a training pair. Called from any thread, several at once.
// A builder that can should end soon after a stop is requested. An application that links the
// compiler may call attn::driver here.
using Builder =
    std::function<Result<plan::Bundle>(const BuildRequest& request, const std::stop_token& stop)>;

struct AttncOptions {
  std::vector<std::string> command = {"attnc"};  // looked up in PATH when it has no slash
  std::optional<plan::Target> target;            // that of a plan; without one the GPU at hand
  std::string cudnn_folder;                      // --cudnn, when it is not empty
  // More of `attnc compile`: --allow-unfused, or --direction both without a `grad` clause.
  std::vector<std::string> arguments;
  // For one build; then attnc is killed. It also ends when this process dies, and by itself soon
  // after this time.
  std::chrono::seconds timeout{300};
};

// Runs `attnc compile` in a process of its own and loads the plans that it wrote. A stop kills it.
// Files lie in a folder under $TMPDIR meanwhile; those that killed processes left there are
// removed. Errors: those that attnc reports, with its code; `worker` when it cannot be started,
// dies, takes too long or was stopped; io.
Builder attnc_builder(AttncOptions options = {});

}  // namespace attn::shapes
