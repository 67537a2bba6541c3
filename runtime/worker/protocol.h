// The messages between client and worker, as JSON text. Texts that are not UTF-8 are {"hex": ".."}.
//
// Request (one document, then end of file):
//   {"request": "compile", "cudnn_folder": "", "device": "{..}", "graphs": [{..}, ..]}
//   {.., "only_offer": true, ..}  only for the engine config that would be tried first
//   {"request": "version", "cudnn_folder": ""}
//   {"request": "kernels", "cudnn_folder": "", "kernels": [{"sm": 90, "general": true, "text":
//   ".."}, ..]}
// Answer: lines. For each graph or kernel, in order, any number of {"progress": {"stage": "plan",
// "node": -1}} and one of the lines below; an error ends the answer.
//   {"compiled": {"cudnn_version": 91900, .., "cudnn_plan": ".."}}  as in a manifest's `compiled`
//   {"version": 91900}
//   {"kernel": {"image": {"hex": "7f454c46.."}, "log": ".."}}
//   {"error": {"code": "unsupported", "message": "..", "notes": [".."], "payload": ".."}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/compile.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/worker/worker.h"

namespace attn::worker {

struct CompileRequest {
  std::string cudnn_folder;
  std::string device_json;
  std::vector<graph::BackendGraph> graphs;  // one or more
  bool only_offer = false;
};
struct VersionRequest {
  std::string cudnn_folder;
};
struct KernelsRequest {
  std::string cudnn_folder;
  std::vector<KernelSource> kernels;  // one or more
};
using Request = std::variant<CompileRequest, VersionRequest, KernelsRequest>;

std::string to_json(const Request& request);
// Errors: invalid_argument.
Result<Request> request_from_json(std::string_view text);

using Message = std::variant<cudnn::Progress, Compiled, std::int64_t, CompiledKernel, Error>;

// One line, including its line end. Errors: cudnn if cuDNN's plan is not UTF-8.
Result<std::string> to_line(const Message& message);
// Errors: worker, quoting the beginning of the line.
Result<Message> message_from_line(std::string_view line);

}  // namespace attn::worker
