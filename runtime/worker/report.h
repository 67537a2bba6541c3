// Reports the death of a worker: the error, and a repro file.
#pragma once

#include <chrono>
#include <cstdint>
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
  cudnn::Progress last;            // the worker's last progress message
  std::optional<int> node;         // the node that cuDNN was processing, if known
  std::chrono::seconds timeout{};  // if the worker timed out
  std::int64_t most_bytes = 0;     // if it took more
};

// Returns an error `worker` with the payload described in worker.h. Writes `request` to
// <folder>/attnc-worker-<signal>-<hash>.json; a note says if that fails.
Error report_death(const Death& death, const graph::BackendGraph& graph, std::string_view request,
                   const std::string& folder);

}  // namespace attn::worker
