// Pictures as text, for terminals.
#pragma once

#include <string>

#include "compiler/pictures/picture.h"

namespace attn::pictures {

// Options of a picture that fits into a terminal with so many columns.
Options for_terminal(Options options, std::int64_t columns, bool colour);

// Draws in the terminal. With colour: half blocks, two rows of cells a line, in 24-bit colour.
// Without: half blocks too where cells are scores, else two characters for each cell, dark, medium
// or light. Owners have a digit or letter each where colours do not tell them apart.
std::string to_terminal(const Picture& picture, bool colour);

}  // namespace attn::pictures
