#include "runtime/worker/protocol.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error_code.h"
#include "runtime/graph/graph_members.h"

namespace attn::worker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kQuotedBytes = 200;

Json to_value(const cudnn::Progress& progress) {
  return {{"progress", {{"stage", progress.stage}, {"node", progress.node}}}};
}

Json to_value(const Compiled& compiled) {
  Json knobs = Json::array();
  for (const plan::Knob& knob : compiled.step.knobs) {
    knobs.push_back(Json::array({knob.type, knob.value}));
  }
  return {{"compiled",
           {{"cudnn_version", compiled.cudnn_version},
            {"heuristic", compiled.step.heuristic},
            {"engine", compiled.step.engine},
            {"knobs", std::move(knobs)},
            {"workspace_bytes", compiled.step.workspace_bytes},
            {"cudnn_plan", compiled.step.cudnn_plan}}}};
}

Json to_value(std::int64_t version) { return {{"version", version}}; }

// Two digits for each byte.
std::string to_hex(const std::string& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

std::string from_hex(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(text.data() + at, text.data() + at + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

Json to_value(const CompiledKernel& kernel) {
  return {{"kernel", {{"image", to_hex(kernel.image)}, {"log", kernel.log}}}};
}

Json to_value(const Error& error) {
  return {{"error",
           {{"code", to_string(error.code)},
            {"message", error.message},
            {"notes", error.notes},
            {"payload", error.payload}}}};
}

// The readers below throw nlohmann's exceptions on anything that does not follow protocol.h.

Compiled compiled_from(const Json& value) {
  Compiled compiled;
  compiled.cudnn_version = value.at("cudnn_version").get<std::int64_t>();
  compiled.step.heuristic = value.at("heuristic").get<std::string>();
  compiled.step.engine = value.at("engine").get<std::int64_t>();
  for (const Json& knob : value.at("knobs")) {
    compiled.step.knobs.push_back({knob.at(0).get<std::int64_t>(), knob.at(1).get<std::int64_t>()});
  }
  compiled.step.workspace_bytes = value.at("workspace_bytes").get<std::int64_t>();
  compiled.step.cudnn_plan = value.at("cudnn_plan").get<std::string>();
  return compiled;
}

Error error_from(const Json& value) {
  Error error;
  const auto code = value.at("code").get<std::string>();
  error.code = parse_error_code(code).value_or(ErrorCode::internal);
  error.message = value.at("message").get<std::string>();
  error.notes = value.at("notes").get<std::vector<std::string>>();
  error.payload = value.at("payload").get<std::string>();
  return error;
}

Message message_from(const Json& value) {
  if (value.contains("progress")) {
    const Json& progress = value.at("progress");
    return cudnn::Progress{progress.at("stage").get<std::string>(), progress.at("node").get<int>()};
  }
  if (value.contains("compiled")) return compiled_from(value.at("compiled"));
  if (value.contains("version")) return value.at("version").get<std::int64_t>();
  if (value.contains("kernel")) {
    const Json& kernel = value.at("kernel");
    return CompiledKernel{from_hex(kernel.at("image").get<std::string>()),
                          kernel.at("log").get<std::string>()};
  }
  return error_from(value.at("error"));
}

Result<Request> request_from(const nlohmann::json& value) {
  const auto kind = value.at("request").get<std::string>();
  auto folder = value.at("cudnn_folder").get<std::string>();
  if (kind == "version") return Request(VersionRequest{std::move(folder)});
  if (kind == "kernel") {
    return Request(
        KernelRequest{std::move(folder),
                      {value.at("text").get<std::string>(), value.at("sm").get<std::int64_t>(),
                       value.at("general").get<bool>()}});
  }
  if (kind != "compile" && kind != "offer") {
    return Result<Request>(ErrorCode::invalid_argument, "unknown request: " + kind);
  }
  CompileRequest request{
      std::move(folder), value.at("device").get<std::string>(), {}, kind == "offer"};
  for (const nlohmann::json& each : value.at("graphs")) {
    json::Failure failure;
    request.graphs.push_back(json::read_members<graph::BackendGraph>({each, failure}));
    ATTN_RETURN_IF_ERROR(failure.status());
  }
  if (!request.graphs.empty()) return Request(std::move(request));
  return Result<Request>(ErrorCode::invalid_argument, "the request has no graph");
}

}  // namespace

std::string to_json(const Request& request) {
  Json value;
  if (const auto* compile = std::get_if<CompileRequest>(&request)) {
    value = {{"request", compile->only_offer ? "offer" : "compile"},
             {"cudnn_folder", compile->cudnn_folder},
             {"device", compile->device_json},
             {"graphs", Json::array()}};
    for (const graph::BackendGraph& graph : compile->graphs) {
      value["graphs"].push_back(json::json_of(graph));
    }
  } else if (const auto* kernel = std::get_if<KernelRequest>(&request)) {
    value = {{"request", "kernel"},
             {"cudnn_folder", kernel->cudnn_folder},
             {"sm", kernel->source.sm},
             {"general", kernel->source.is_general},
             {"text", kernel->source.text}};
  } else {
    value = {{"request", "version"},
             {"cudnn_folder", std::get<VersionRequest>(request).cudnn_folder}};
  }
  return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Request> request_from_json(std::string_view text) {
  try {
    return request_from(nlohmann::json::parse(text));
  } catch (const Json::exception& error) {
    return Result<Request>(ErrorCode::invalid_argument,
                           fmt::format("cannot read the request: {}", error.what()));
  }
}

Result<std::string> to_line(const Message& message) {
  const Json value = std::visit([](const auto& what) { return to_value(what); }, message);
  const bool exact = std::holds_alternative<Compiled>(message);
  try {
    return value.dump(-1, ' ', false,
                      exact ? Json::error_handler_t::strict : Json::error_handler_t::replace) +
           "\n";
  } catch (const Json::exception& error) {
    return Result<std::string>(ErrorCode::cudnn,
                               fmt::format("cuDNN's plan is not UTF-8: {}", error.what()));
  }
}

Result<Message> message_from_line(std::string_view line) {
  try {
    return message_from(Json::parse(line));
  } catch (const Json::exception&) {
    return Result<Message>(
        ErrorCode::worker,
        fmt::format("the worker sent an unknown message: \"{}\"", line.substr(0, kQuotedBytes)));
  }
}

}  // namespace attn::worker
