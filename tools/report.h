// Error reporting: rustc-style text on standard error, and with --format json also {"error": {..}}
// on standard output.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/driver/driver.h"
#include "compiler/support/paint.h"
#include "compiler/support/source.h"
#include "runtime/base/status.h"
#include "tools/command.h"

namespace attn::tools {

using Json = nlohmann::ordered_json;

// Prints the error and returns its exit code. If the error's payload has a position ("line",
// "column") and `source` is given, the line is shown with a caret. Engine configs in the payload
// are printed as a table, one for each strategy that was tried.
int report(const Error& error, Format format, const support::Source* source = nullptr);

// Prints the diagnostics of one file, if any, to standard error, separated from those of the
// previous file by a blank line. Not thread-safe.
void print_diagnostics(const std::string& text);

// The text and the JSON that report() prints. What cuDNN answers for engine configs is one sentence
// of the text, but in the full one, and with --verbose.
std::string error_text(const Error& error, const support::Source* source,
                       support::Paint paint = {});
std::string full_error_text(const Error& error, const support::Source* source,
                            support::Paint paint = {});
Json error_json(const Error& error, const support::Source* source);

// One line per refused strategy: "strategy unified, since composite was refused: REASON", or
// "failed" if a worker died or timed out.
std::vector<std::string> refusal_lines(const driver::Compiled& compiled);
// Prints them to standard error, prefixed with "SPEC: " or "SPEC backward: ".
void tell_refusals(const driver::Compiled& compiled);
// [{"strategy": "composite", "error": {..}}].
Json refusals_json(const std::vector<planner::Refusal>& refusals);

// What was taken, and what runs each step:
// {"strategy": "native", "predicted_ms": 0.83, "steps": [{"engine": "native"}]}
// Null where a plan of an older file does not say it. A step is of "cudnn", of "native", or
// "kernels", which attnc generated for another engine's strategy.
Json decision_json(const plan::Plan& plan);

// "chosen: parts (cudnn), 0.135 ms predicted, 0.142 ms measured; native, 0.246 ms predicted": one
// line, or none if there was only one strategy.
std::vector<std::string> choice_lines(const plan::Plan& plan);
// [{"strategy": "parts", "engine": "cudnn", "predicted_ms": .., "measured_ms": .., "refused":
// ".."}] predicted_ms is null for what could not be expressed.
Json choice_json(const plan::Plan& plan);

// Prints JSON to standard output, indented by two spaces; bytes that are not UTF-8 are replaced.
void print_json(const Json& json);
// The same in one line, which is written at once.
void print_json_line(const Json& json);
// Prints JSON in the one form or the other; nothing with Format::text.
void print_data(const Json& json, Format format);

}  // namespace attn::tools
