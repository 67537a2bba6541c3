#include "tools/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "compiler/support/text.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

using support::Paint;
using support::Style;

enum class When : std::uint8_t { automatic, always, never };

// The console of the process.
struct Console {
  When color = When::automatic;
  bool progress = false;
  bool quiet = false;
  bool verbose = false;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::mutex mutex;       // of the rest
  bool has_line = false;  // a progress line is shown
};

Console& console() {
  static Console state;
  return state;
}

const std::vector<std::string>& when_words() {
  static const std::vector<std::string> words = {"auto", "always", "never"};
  return words;
}

void set_color(const std::string& word) {
  const auto found = std::ranges::find(when_words(), word);
  if (found == when_words().end()) return;
  console().color = static_cast<When>(found - when_words().begin());
}

// Whether a variable of the environment is set and not empty.
bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool is_dumb() {
  const char* terminal = std::getenv("TERM");
  return terminal != nullptr && std::string_view(terminal) == "dumb";
}

// NO_COLOR: no-color.org; CLICOLOR_FORCE: bixense.com/clicolors.
bool wants_color(int descriptor) {
  if (console().color != When::automatic) return console().color == When::always;
  if (is_set("NO_COLOR")) return false;
  if (is_set("CLICOLOR_FORCE") && std::string_view(std::getenv("CLICOLOR_FORCE")) != "0") {
    return true;
  }
  return !is_dumb() && isatty(descriptor) == 1;
}

bool on_terminal() { return isatty(STDERR_FILENO) == 1 && !is_dumb(); }

// The first `columns` characters of the text.
std::string cut(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  for (; columns > 0 && bytes < text.size(); --columns) {
    bytes += support::code_point_bytes(text.substr(bytes));
  }
  return std::string(text.substr(0, bytes));
}

// The caller holds the mutex, here and below.
void clear_line() {
  if (!console().has_line) return;
  fmt::print(stderr, "\r\x1b[K");
  console().has_line = false;
}

void begin_data() {
  clear_line();
  if (isatty(STDERR_FILENO) == 1) std::fflush(stdout);  // in the order in which it is written
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void add_common_options(CLI::App& app) {
  Console& state = console();
  app.add_option_function<std::string>("--color", set_color,
                                       "Colour the output; auto: on a terminal, unless NO_COLOR "
                                       "is set")
      ->type_name("auto|always|never")
      ->check(CLI::IsMember(when_words()))
      ->default_text("auto")
      ->group(kCommonOptions);
  app.add_flag("--progress", state.progress,
               "Show the progress of long work, as on a terminal, also if it is none")
      ->group(kCommonOptions);
  app.add_flag("-q,--quiet", state.quiet, "Print only data, warnings and errors")
      ->group(kCommonOptions);
  app.add_flag("-v,--verbose", state.verbose,
               "Also print to standard error what is done, and after how many seconds")
      ->group(kCommonOptions);
}

}  // namespace

void add_console_options(CLI::App& app) { app.visit(add_common_options); }

std::string conflict() {
  // CLI11 cannot find this: each option may be given before the command or after it.
  return console().quiet && console().verbose ? "--quiet and --verbose cannot be given together"
                                              : "";
}

void take_color(const std::vector<std::string>& words) {
  if (const auto word = CLI::detail::value_of(words, "--color")) set_color(*word);
}

Paint output_paint() { return Paint(wants_color(STDOUT_FILENO)); }
Paint error_paint() { return Paint(wants_color(STDERR_FILENO)); }

bool is_quiet() { return console().quiet; }

void tell(std::string_view text) {
  const std::lock_guard lock(console().mutex);
  clear_line();
  fmt::print(stderr, "{}", text);
}

std::optional<std::size_t> columns_of(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::size_t line_width() {
  constexpr std::size_t kUsual = 100;
  return columns_of(STDOUT_FILENO).value_or(kUsual);
}

void tell_warning(std::string_view message) {
  tell(fmt::format("{}: {}\n", error_paint()(Style::warning, "warning"), message));
}

void tell_note(std::string_view text) {
  if (!is_quiet()) tell(fmt::format("{}\n", text));
}

bool is_verbose() { return console().verbose; }

void tell_detail(std::string_view text) {
  if (!console().verbose) return;
  const std::string clock = fmt::format("[{:7.3f} s]", seconds_since(console().begin));
  tell(fmt::format("{} {}\n", error_paint()(Style::frame, clock), text));
}

void put(std::string_view text) {
  const std::lock_guard lock(console().mutex);
  begin_data();
  fmt::print("{}", text);
}

void put_at_once(std::string_view text) {
  const std::lock_guard lock(console().mutex);
  begin_data();
  fmt::print("{}", text);
  std::fflush(stdout);
}

void put_summary(std::string_view text) {
  if (!is_quiet()) put(text);
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

Progress::Progress(std::string what, std::size_t count) : what_(std::move(what)), count_(count) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  const std::lock_guard lock(console().mutex);
  begin_data();
}

std::string Progress::line(std::size_t done, const std::string& part) const {
  std::string text = what_;
  if (count_ > 0) text += fmt::format(": {} of {}", done, count_);
  if (!part.empty()) text += fmt::format("{} {}", count_ > 0 ? "," : ":", shown(part));
  const double passed = seconds_since(begin_);
  if (count_ == 0 || done == 0 || done >= count_ || passed < 1) return text;
  const double left = passed * static_cast<double>(count_ - done) / static_cast<double>(done);
  return text + fmt::format(", about {} left", duration_text(left));
}

void Progress::show(std::size_t done, const std::string& part) {
  constexpr auto kPeriod = std::chrono::milliseconds(100);
  constexpr std::size_t kColumns = 80;  // of a terminal that does not say how many it has
  Console& state = console();
  const bool terminal = on_terminal();
  if (state.quiet || (!terminal && !state.progress)) return;
  if (count_ == 1) return;  // nothing to count
  const std::lock_guard lock(state.mutex);
  const auto now = Clock::now();
  if (terminal) {
    if (now - shown_ < kPeriod) return;
    shown_ = now;
    const std::string text = line(done, part);
    fmt::print(stderr, "\r\x1b[K{}", cut(text, columns_of(STDERR_FILENO).value_or(kColumns) - 1));
    state.has_line = true;
    return;
  }
  const std::size_t percent = count_ == 0 ? 0 : 100 * done / count_;
  if (part == part_ && percent == percent_) return;  // of many small parts, each hundredth
  part_ = part;
  percent_ = percent;
  fmt::print(stderr, "{}\n", line(done, part));
}

}  // namespace attn::tools
