// Registration of subcommands, and options that several of them share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/sema/analyze.h"
#include "tools/cli.h"

namespace attn::tools {

// The selected command; run after parsing. Returns the exit code.
using Action = std::function<int()>;

enum class Format : std::uint8_t {
  text,
  json,
  json_lines,  // a line for each row, as soon as it is known
};

// Exit codes without an ErrorCode (the others are in runtime/base/error_codes.def).
inline constexpr int kOk = 0;
inline constexpr int kSpecHasErrors = 1;
inline constexpr int kUsage = 2;
inline constexpr int kUnsupported = 3;
inline constexpr int kMismatch = 5;

// Each registers one subcommand.
#define ATTN_COMMAND(name) void add_##name(CLI::App& app, Action& action);
#include "tools/commands.def"

// Makes `run(*options)` the action when `command` is chosen.
template <typename Options, typename Run>
void set_action(CLI::App& command, Action& action, std::shared_ptr<Options> options, Run run) {
  command.callback([&action, options, run] { action = [options, run] { return run(*options); }; });
}

// --format text|json, and with `lines` also jsonl
void add_format(CLI::App& command, Format& format, bool lines = false);

// --bind NAME=VALUE, repeatable; a repeated name is a usage error.
void add_bind(CLI::App& command, sema::Bindings& bindings);
// The same with another placeholder and description.
void add_bindings(CLI::App& command, const std::string& value, sema::Bindings& bindings,
                  const std::string& description);

// The positional argument SPEC|PLAN.
void add_subject(CLI::App& command, std::string& path);

// --direction fwd|bwd|both
void add_direction(CLI::App& command, std::string& direction, const std::string& description);

// --cudnn DIR
void add_cudnn(CLI::App& command, std::string& folder);

// A repeatable NAME=VALUE option called `name`; `value` is its placeholder in the help.
CLI::Option* add_assignments(CLI::App& command, const std::string& name, const std::string& value,
                             std::map<std::string, std::string>& assignments,
                             const std::string& description);

// Adds --in, the values of tensors and params, to `inputs` (tools/inputs.h).
void add_in(CLI::App& command, std::map<std::string, std::string>& inputs);

}  // namespace attn::tools
