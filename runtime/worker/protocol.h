// The messages between client and worker, as JSON text.
//
// Request (one document, then end of file):
//   {"request": "compile", "cudnn_folder": "", "device": "{..}", "graph": {..}}
//   {"request": "offer", ..}  the same, but only for the engine config that would be tried first
//   {"request": "version", "cudnn_folder": ""}
// Answer: lines. Any number of {"progress": {"stage": "plan", "node": -1}}, then one of
//   {"compiled": {"cudnn_version": 91900, "heuristic": "A", "engine": 2, "knobs": [[24, 7]],
//                 "workspace_bytes": 256, "cudnn_plan": ".."}}
//   {"version": 91900}
//   {"error": {"code": "unsupported", "message": "..", "notes": [".."], "payload": ".."}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/base/status.h"
#include "runtime/cudnn/compile.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/worker/worker.h"

namespace attn::worker {

struct CompileRequest {
  std::string cudnn_folder;
  std::string device_json;
  graph::BackendGraph graph;
  bool only_offer = false;
};
struct VersionRequest {
  std::string cudnn_folder;
};
using Request = std::variant<CompileRequest, VersionRequest>;

std::string to_json(const Request& request);
// Errors: invalid_argument.
Result<Request> request_from_json(std::string_view text);

using Message = std::variant<cudnn::Progress, Compiled, std::int64_t, Error>;

// One line, including its line end. Errors: cudnn if cuDNN's plan is not UTF-8.
Result<std::string> to_line(const Message& message);
// Errors: worker, quoting the beginning of the line.
Result<Message> message_from_line(std::string_view line);

}  // namespace attn::worker
