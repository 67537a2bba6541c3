#include "runtime/worker/protocol.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/graph/graph_members.h"
#include "runtime/plan/plan_members.h"

namespace attn {
namespace {

std::optional<ErrorCode> parse_code(std::string_view text) {
  return parse_error_code(text).value_or(ErrorCode::internal);
}

}  // namespace

namespace json {

template <>
inline constexpr auto kParse<ErrorCode> = &parse_code;

}  // namespace json

template <json::Like<Error> Self, typename Visit>
void members(Self& error, Visit& visit) {
  auto& [code, message, notes, payload] = error;
  visit("code", code);
  visit("message", message);
  visit("notes", notes);
  visit("payload", payload);
}

namespace cudnn {

template <json::Like<Progress> Self, typename Visit>
void members(Self& progress, Visit& visit) {
  auto& [stage, node] = progress;
  visit("stage", stage);
  visit("node", node);
}

}  // namespace cudnn

namespace worker {

template <json::Like<Compiled> Self, typename Visit>
void members(Self& compiled, Visit& visit) {
  auto& [step, cudnn_version] = compiled;
  visit("cudnn_version", cudnn_version);
  visit.spread(step);
  visit("cudnn_plan", step.cudnn_plan);
}

template <json::Like<CompiledKernel> Self, typename Visit>
void members(Self& kernel, Visit& visit) {
  auto& [image, log] = kernel;
  visit("image", image);
  visit("log", log);
}

template <json::Like<CompileRequest> Self, typename Visit>
void members(Self& request, Visit& visit) {
  auto& [cudnn_folder, device_json, graphs, only_offer] = request;
  visit.kind("request", "compile");
  visit("cudnn_folder", cudnn_folder);
  visit("device", device_json);
  visit.optional("only_offer", only_offer);
  visit("graphs", graphs);
  visit.must("graphs", !graphs.empty(), "has no graph");
}

template <json::Like<VersionRequest> Self, typename Visit>
void members(Self& request, Visit& visit) {
  auto& [cudnn_folder] = request;
  visit.kind("request", "version");
  visit("cudnn_folder", cudnn_folder);
}

template <json::Like<KernelSource> Self, typename Visit>
void members(Self& source, Visit& visit) {
  auto& [text, sm, is_general] = source;
  visit("sm", sm);
  visit("general", is_general);
  visit("text", text);
}

template <json::Like<KernelsRequest> Self, typename Visit>
void members(Self& request, Visit& visit) {
  auto& [cudnn_folder, kernels] = request;
  visit.kind("request", "kernels");
  visit("cudnn_folder", cudnn_folder);
  visit("kernels", kernels);
  visit.must("kernels", !kernels.empty(), "has no kernel");
}

namespace {

constexpr std::size_t kQuotedBytes = 200;

// Names of the alternatives of a message.
constexpr const char* kMessages[] = {"progress", "compiled", "version", "kernel", "error"};
static_assert(std::size(kMessages) == std::variant_size_v<Message>);

template <std::size_t kMessage = 0>
void read_message(const json::Value& value, Message& message) {
  if constexpr (kMessage == std::size(kMessages)) {
    value.fail("is no message");
  } else if (value.has(kMessages[kMessage])) {
    json::Reader::read(value[kMessages[kMessage]], message.emplace<kMessage>());
  } else {
    read_message<kMessage + 1>(value, message);
  }
}

}  // namespace

std::string to_json(const Request& request) { return json::json_of(request).dump(1) + "\n"; }

Result<Request> request_from_json(std::string_view text) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  json::Failure failure;
  Request request = json::read_members<Request>({document, failure});
  if (failure.ok()) return request;
  return Error{ErrorCode::invalid_argument,
               "cannot read the request: " + failure.status().error().message};
}

Result<std::string> to_line(const Message& message) {
  const auto* compiled = std::get_if<Compiled>(&message);
  if (compiled != nullptr && !json::of_text(compiled->step.cudnn_plan).is_string())
    return Error{ErrorCode::cudnn, "cuDNN's plan is not UTF-8"};
  nlohmann::ordered_json line;
  line[kMessages[message.index()]] =
      std::visit([](const auto& what) { return json::json_of(what); }, message);
  return line.dump() + "\n";
}

Result<Message> message_from_line(std::string_view line) {
  const auto document = nlohmann::json::parse(line, nullptr, false);
  json::Failure failure;
  Message message;
  read_message({document, failure}, message);
  if (failure.ok()) return message;
  return Result<Message>(
      ErrorCode::worker,
      fmt::format("the worker sent an unknown message: \"{}\"", line.substr(0, kQuotedBytes)));
}

}  // namespace worker
}  // namespace attn
