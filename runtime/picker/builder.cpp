#include "runtime/picker/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "runtime/base/spec_form.h"
#include "runtime/base/status.h"
#include "runtime/io/file.h"
#include "runtime/picker/build_folder.h"
#include "runtime/worker/process.h"

namespace attn::picker {
namespace {

using Json = nlohmann::json;
using worker::Ending;

Status write(const std::string& path, const std::string& text) {
  return io::write_file(path, std::as_bytes(std::span(text)));
}

// Writes the target to a file whose stem is its name.
std::string target_file(const plan::Target& target) {
  std::string name = target.name;
  std::ranges::replace(name, '/', '_');
  return name + ".json";
}

Result<std::vector<std::string>> command_for(const AttncOptions& options,
                                             const BuildRequest& request,
                                             const BuildFolder& folder) {
  const bool json = is_json_spec(request.spec_text);
  const std::string spec = folder.file(json ? "spec.attn.json" : "spec.attn");
  ATTN_RETURN_IF_ERROR(write(spec, request.spec_text));
  std::vector<std::string> command = options.command;
  command.insert(command.end(), {"compile", spec, "--output", folder.file("plans.attnplan"),
                                 "--format", "json", "--target"});
  if (options.target) {
    command.push_back(folder.file(target_file(*options.target)));
    ATTN_RETURN_IF_ERROR(write(command.back(), options.target->device_json));
  } else {
    command.emplace_back("native");
  }
  if (!options.cudnn_folder.empty()) {
    command.insert(command.end(), {"--cudnn", options.cudnn_folder});
  }
  for (const auto& [name, value] : request.bindings) {
    command.insert(command.end(), {"--bind", fmt::format("{}={}", name, value)});
  }
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

Error failed(const std::string& what, const Ending& ending) {
  Error error{ErrorCode::worker, what};
  if (!ending.error_output.empty())
    error.notes.push_back("its error output: " + ending.error_output);
  return error;
}

// Parses what attnc prints with --format json: {"error": {..}}, or the diagnostics of a bad spec.
std::optional<Error> reported(const std::string& output, const Ending& ending) {
  const Json json = Json::parse(output, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  if (json.contains("diagnostics")) {
    return Error{ErrorCode::invalid_spec, "the spec has errors", {ending.error_output}, output};
  }
  const auto found = json.find("error");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  const auto code = parse_error_code(found->value("code", ""));
  if (!code) return std::nullopt;
  Error error{*code, found->value("message", "")};
  for (const Json& note : found->value("notes", Json::array())) {
    if (note.is_string()) error.notes.push_back(note.get<std::string>());
  }
  if (found->contains("detail")) error.payload = found->at("detail").dump();
  return error;
}

Status check_ending(const Ending& ending, const std::string& output, const AttncOptions& options) {
  switch (ending.how) {
    case Ending::How::cancelled: return {ErrorCode::worker, "the build was stopped"};
    case Ending::How::timed_out:
      return failed(
          fmt::format("attnc took longer than {} s and was killed", options.timeout.count()),
          ending);
    case Ending::How::signalled:
      return failed("attnc was killed by " + worker::signal_name(ending.signal), ending);
    case Ending::How::too_large:
      return failed("attnc took more memory than it may and was killed", ending);
    case Ending::How::stopped:
    case Ending::How::unknown:  // check its output file
    case Ending::How::exited: break;
  }
  if (ending.code == 0) return {};
  if (std::optional<Error> error = reported(output, ending)) return *std::move(error);
  return failed(fmt::format("attnc exited with code {}", ending.code), ending);
}

Result<plan::Bundle> build(const AttncOptions& options, const BuildRequest& request,
                           const std::stop_token& stop) {
  ATTN_ASSIGN(const BuildFolder folder, BuildFolder::create());
  ATTN_ASSIGN(const std::vector<std::string> command, command_for(options, request, folder));
  std::string output;
  const auto collect = [&output](std::string_view line) {
    output.append(line).push_back('\n');
    return false;
  };
  ATTN_ASSIGN(const Ending ending,
              worker::run_process(command, "", {options.timeout, stop}, collect));
  ATTN_RETURN_IF_ERROR(check_ending(ending, output, options));
  std::error_code ignored;
  if (!std::filesystem::exists(folder.file("plans.attnplan"), ignored)) {
    return failed("attnc exited without writing a plan", ending);
  }
  return plan::load_bundle(folder.file("plans.attnplan"));
}

}  // namespace

Builder attnc_builder(AttncOptions options) {
  return [options = std::move(options)](const BuildRequest& request, const std::stop_token& stop) {
    return build(options, request, stop);
  };
}

}  // namespace attn::picker
