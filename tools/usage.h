// Error messages for wrong command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/described.h"

namespace attn::tools {

// "unknown command `chekc`; did you mean `check`?", for a word after `command` that is not one of
// its commands. Suggestions ignore case. For the name of a file, it says how to check or inspect
// it.
std::string no_command(const DescribedCommand& command, const std::string& word);

// The same for the first of `words` that is not a command where one is required; "" if there is no
// error. Skips common options before it; stops at any other.
std::string unknown_command(const DescribedCommand& command, const std::vector<std::string>& words);

// The command that `words` select, if it still needs a command below it; otherwise nullptr.
const DescribedCommand* incomplete_command(const DescribedCommand& command,
                                           const std::vector<std::string>& words);

// What is wrong with the command line `given`, which `app` could not parse: an unknown option or a
// surplus argument first, then a value, then what is missing.
std::string words_of(const ::CLI::App& app, const ::CLI::ParseError& error,
                     const std::vector<std::string>& given);

// Where to read about the command that was given.
std::string hint_of(const ::CLI::App& app);

// Whether the words ask for JSON, even if they are wrong otherwise.
Format asked_format(const std::vector<std::string>& words);

// Prints "error: MESSAGE" and `hint` to standard error, and with Format::json the error to standard
// output; returns the exit code.
int usage_error(const std::string& message, Format format, const std::string& hint = "");

}  // namespace attn::tools
