// Cases as lines of text: NAME PAGE LENGTHS ROWS, for example `mixed 16 4096x255,8192 1x255,2048`.
#pragma once

#include <istream>
#include <stdexcept>
#include <string>
#include <vector>

namespace attn::flashinfer_peer {

// What is asked for cannot be done: no error of the device.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Case {
  std::string name;
  int page = 0;              // keys of a page
  std::vector<int> lengths;  // keys of each sequence, at least 1
  std::vector<int> rows;     // rows of each sequence, 1 <= rows <= length

  int sequences() const { return static_cast<int>(lengths.size()); }
  bool one_row() const;  // in every sequence
};

// LENGTHS and ROWS are numbers with commas between them, each with an optional xCOUNT; a single
// number of rows is that of every sequence. Empty lines and those that begin with # are skipped.
// Throws Refusal that names the line.
std::vector<Case> read_cases(std::istream& lines);

}  // namespace attn::flashinfer_peer
