// Errors as people and scripts read them: rustc's shape on standard error, and with --format json
// also {"error": {..}} on standard output.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/driver/driver.h"
#include "compiler/support/source.h"
#include "runtime/base/status.h"
#include "tools/command.h"

namespace attn::tools {

using Json = nlohmann::ordered_json;

// Prints the error and returns its exit code. When the error's payload places it ("line",
// "column") and `source` is given, the line is shown with a caret; engine configs in the payload
// become a table, one for each lowering that was tried.
int report(const Error& error, Format format, const support::Source* source = nullptr);

// Prints the diagnostics of one file, if there are any, to standard error, with a blank line
// between them and those of the file before. Not thread-safe.
void print_diagnostics(const std::string& text);

// The two halves of report().
std::string error_text(const Error& error, const support::Source* source);
Json error_json(const Error& error, const support::Source* source);

// "lowering unified, since composite was refused: REASON", or "failed" where a worker died or took
// too long: a line for each.
std::vector<std::string> refusal_lines(const driver::Compiled& compiled);
// The same on standard error, after "SPEC: ", or "SPEC backward: ".
void tell_refusals(const driver::Compiled& compiled);
// [{"lowering": "composite", "error": {..}}]
Json refusals_json(const std::vector<planner::Refusal>& refusals);

// "chosen: parts, 0.135 ms predicted, 0.142 ms measured; composite, 0.246 ms predicted": one line,
// or none where there was nothing to choose. Predicted is what an H200 would take.
std::vector<std::string> choice_lines(const plan::Plan& plan);
// [{"lowering": "parts", "predicted_ms": .., "measured_ms": .., "refused": ".."}]
Json choice_json(const plan::Plan& plan);

// Prints JSON to standard output, two spaces a level; bytes that are not UTF-8 are replaced.
void print_json(const Json& json);

}  // namespace attn::tools
