// What is wrong with a command line, in words: a command or an option that does not exist.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace attn::tools {

// The command of `app` with this name, or nullptr.
const ::CLI::App* command_named(const ::CLI::App& app, const std::string& name);

// "no command `chekc`; did you mean `check`?", for a word that follows `app` and names no command
// of it, in whatever case.
std::string no_command(const ::CLI::App& app, const std::string& word);

// The same for the first of `words` that names no command where one is needed, or that one is
// missing; "" when neither is so. Words from the first option on are not looked at.
std::string unknown_command(const ::CLI::App& app, const std::vector<std::string>& words);

// "`attnc compile` has no option `--targt`; did you mean `--target`?", or an argument too many; ""
// when parsing has met neither.
std::string unexpected_argument(const ::CLI::App& app);

// Prints "error: MESSAGE" and where help is found to standard error; returns the exit code.
int usage_error(const std::string& message);

}  // namespace attn::tools
