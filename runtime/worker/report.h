// What is said when a worker died: the error, and a repro file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cudnn/compile.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/worker/process.h"

namespace attn::worker {

struct Death {
  Ending ending;
  cudnn::Progress last;            // the last thing that the worker said it would do
  std::optional<int> node;         // what cuDNN was looking at, when that is known
  std::chrono::seconds timeout{};  // of a worker that took too long
};

// Error `worker` with the payload that worker.h documents. Writes `request` to
// <folder>/attnc-worker-<signal>-<hash>.json; when that cannot be done a note says so.
Error report_death(const Death& death, const graph::BackendGraph& graph, std::string_view request,
                   const std::string& folder);

}  // namespace attn::worker
