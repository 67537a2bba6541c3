// Completion of command lines in shells. The scripts of the shells (tools/completion) ask
// `attnc complete WORD...`, which answers from the tables of the options.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/described.h"

namespace attn::tools {

// What may stand for the last of `words`, which are those after `attnc` on an unfinished command
// line: one line each, "WORD" or "WORD<tab>MEANING". Files are the shell's to list: the line
// ":files" asks for all, ":files .attn .attnplan" for those with these suffixes, ":folders" for
// folders.
std::string completions(const DescribedCommand& command, std::span<const std::string> words);

}  // namespace attn::tools
