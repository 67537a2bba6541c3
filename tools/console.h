// What the command line shows beside data: colour, progress, notes, and how much of them. The
// options are global state, set while the command line is parsed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/paint.h"
#include "tools/cli.h"

namespace attn::tools {

// The group of these options in the help.
inline constexpr const char* kCommonOptions = "Common options";

// Adds --color, --progress, --quiet and --verbose to `app` and every command below it.
void add_console_options(CLI::App& app);

// What is wrong with these options together, once they are parsed; "" if nothing.
std::string conflict();

// --color as written, for errors of the command line itself, which stop the parsing.
void take_color(const std::vector<std::string>& words);

// Paints for standard output and standard error. --color decides; then NO_COLOR, CLICOLOR_FORCE and
// TERM=dumb; then whether it is a terminal.
support::Paint output_paint();
support::Paint error_paint();

bool is_quiet();

// The width of the terminal that a descriptor is, if it is one and says it.
std::optional<std::size_t> columns_of(int descriptor);
// Width of a line of standard output; 100 if it is no terminal, or does not say it.
std::size_t line_width();

// Each clears a progress line first. tell() prints to standard error as it is.
void tell(std::string_view text);
void tell_warning(std::string_view message);  // "warning: MESSAGE"
void tell_note(std::string_view text);        // a line, unless --quiet
void tell_detail(std::string_view text);      // a line with the seconds so far, if --verbose
bool is_verbose();
// These print to standard output, and no progress line comes between. put_at_once() does not keep
// the text in a buffer; put_summary() is for what only informs, unless --quiet.
void put(std::string_view text);
void put_at_once(std::string_view text);
void put_summary(std::string_view text);

// How far a long work is: one line on standard error, rewritten in place, with the time left. Only
// on a terminal, or with --progress (elsewhere a line for each update). There is at most one at a
// time. Thread-safe.
class Progress {
 public:
  // `count` parts of `what`; 0 if it is not known how many. Of a single part nothing is shown.
  Progress(std::string what, std::size_t count);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // "verify: 3 of 45, causal, about 2 min left": `done` parts are done, and `part` is next.
  void show(std::size_t done, const std::string& part);

  // Clears the line, if there is one; anything that prints without the functions above calls this
  // first, while no other thread shows progress.
  static void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(std::size_t done, const std::string& part) const;

  const std::string what_;
  const std::size_t count_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_;  // when the line was last written
  std::size_t percent_ = 0;  // of the last line that is not on a terminal
  std::string part_;
};

// "8 s", "3 min", "2.5 hours"
std::string duration_text(double seconds);

}  // namespace attn::tools
