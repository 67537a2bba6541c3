#include "runtime/worker/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/hash.h"
#include "runtime/graph/operands.h"

namespace attn::worker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 16;

// "SIGFPE", "timeout", "exit-3": for messages and for the file name.
std::string cause_of(const Ending& ending) {
  switch (ending.how) {
    case Ending::How::signalled: return signal_name(ending.signal);
    case Ending::How::timed_out: return "timeout";
    case Ending::How::too_large: return "memory";
    case Ending::How::exited: return fmt::format("exit-{}", ending.code);
    case Ending::How::stopped:
    case Ending::How::cancelled:
    case Ending::How::unknown: break;
  }
  return "unknown";
}

std::string what_happened(const Death& death) {
  switch (death.ending.how) {
    case Ending::How::signalled:
      return fmt::format("the compile worker was killed by {}", signal_name(death.ending.signal));
    case Ending::How::timed_out:
      return fmt::format("the compile worker took longer than {} s and was killed",
                         death.timeout.count());
    case Ending::How::too_large:
      return fmt::format("the compile worker took more than {} MiB of memory and was killed",
                         death.most_bytes >> 20);
    case Ending::How::exited:
      return fmt::format("the compile worker exited without an answer (exit code {})",
                         death.ending.code);
    case Ending::How::stopped:
    case Ending::How::cancelled:
    case Ending::How::unknown: break;
  }
  return "the compile worker exited without an answer";
}

const graph::Node* node_of(const Death& death, const graph::BackendGraph& graph) {
  if (!death.node || *death.node < 0) return nullptr;
  const auto index = static_cast<std::size_t>(*death.node);
  return index < graph.nodes.size() ? &graph.nodes[index] : nullptr;
}

std::string place_of(const Death& death, const graph::Node* node) {
  std::string place;
  if (!death.last.stage.empty()) place += fmt::format(", in stage \"{}\"", death.last.stage);
  if (node == nullptr) return place;
  place += fmt::format(", at node {} ({})", *death.node, graph::mnemonic_of(*node));
  const SourcePos pos = graph::position_of(*node);
  if (pos.line > 0) place += fmt::format(", line {}, column {}", pos.line, pos.column);
  return place;
}

struct Repro {
  std::string path;  // empty if it could not be written
  std::string note;
};

Repro write_repro(const Death& death, std::string_view request, const std::string& folder) {
  const std::string hash = hash128(request).to_hex().substr(0, kHashDigits);
  const fs::path path = fs::path(folder.empty() ? "." : folder) /
                        fmt::format("attnc-worker-{}-{}.json", cause_of(death.ending), hash);
  std::error_code ignored;  // the write below reports a missing folder
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << request << std::flush;
  if (!file) return {"", "the repro file " + path.string() + " could not be written"};
  return {path.string(), "replay it with: attnc worker < " + path.string()};
}

std::string payload_of(const Death& death, const graph::Node* node, const Repro& repro) {
  const SourcePos pos = node != nullptr ? graph::position_of(*node) : SourcePos{};
  const Json payload = {
      {"signal",
       death.ending.how == Ending::How::signalled ? signal_name(death.ending.signal) : ""},
      {"cause", cause_of(death.ending)},
      {"stage", death.last.stage},
      {"node", node != nullptr ? *death.node : -1},
      {"line", pos.line},
      {"column", pos.column},
      {"repro", repro.path}};
  return payload.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The last lines that the worker wrote to standard error, joined into one.
std::string said(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' || c == '\r' ? ' ' : c;
  const std::size_t end = line.find_last_not_of(' ');
  return end == std::string::npos ? "" : line.substr(0, end + 1);
}

}  // namespace

Error report_death(const Death& death, const graph::BackendGraph& graph, std::string_view request,
                   const std::string& folder) {
  const graph::Node* node = node_of(death, graph);
  const Repro repro = write_repro(death, request, folder);
  Error error;
  error.code = ErrorCode::worker;
  error.message = what_happened(death) + place_of(death, node);
  error.notes.push_back(repro.note);
  const std::string words = said(death.ending.error_output);
  if (!words.empty()) error.notes.push_back("its error output: " + words);
  error.payload = payload_of(death, node, repro);
  return error;
}

}  // namespace attn::worker
