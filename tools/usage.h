// Error messages for unknown commands and options.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attn::tools {

// The command of `app` with this name, or nullptr.
const ::CLI::App* command_named(const ::CLI::App& app, const std::string& name);

// "unknown command `chekc`; did you mean `check`?", for a word after `app` that is not one of its
// commands. Suggestions ignore case.
std::string no_command(const ::CLI::App& app, const std::string& word);

// The same for the first of `words` that is not a command where one is required, or a message that
// the command is missing; "" if there is no error. Stops at the first option.
std::string unknown_command(const ::CLI::App& app, const std::vector<std::string>& words);

// "`attnc compile` has no option `--targt`; did you mean `--target`?", or the message for a surplus
// argument; "" if parsing found neither.
std::string unexpected_argument(const ::CLI::App& app);

// Prints "error: MESSAGE" and a pointer to the help to standard error; returns the exit code.
int usage_error(const std::string& message);

}  // namespace attn::tools
