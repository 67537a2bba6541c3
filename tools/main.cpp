#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "compiler/nvrtc/nvrtc.h"
#include "runtime/worker/process.h"
#include "runtime/worker/worker.h"
#include "tools/command.h"
#include "tools/completion.h"
#include "tools/console.h"
#include "tools/help.h"
#include "tools/report.h"
#include "tools/serve.h"
#include "tools/usage.h"

namespace attn::tools {
namespace {

void add_commands(CLI::App& app, Action& action) {
#define ATTN_COMMAND(name) add_##name(app, action);
#include "tools/commands.def"
  add_console_options(app);
  app.visit([](CLI::App& each) { each.help_in_group(kCommonOptions); });
}

// Errors that CLI11 does not find, or words worse; nothing if there are none.
std::optional<int> checked_words(const ::CLI::App& app, const std::vector<std::string>& words) {
  const DescribedCommand all = describe(app);
  const std::string unknown = unknown_command(all, words);
  if (!unknown.empty()) return usage_error(unknown, asked_format(words));
  const DescribedCommand* incomplete = incomplete_command(all, words);
  if (incomplete == nullptr) return std::nullopt;
  return usage_error(fmt::format("`{}` needs a command", incomplete->full_name),
                     asked_format(words), "\n" + short_help_text(*incomplete, error_paint()));
}

int parse_and_run(::CLI::App& app, const Action& action, std::vector<std::string> words) {
  take_color(words);
  if (const std::optional<int> wrong = checked_words(app, words)) return *wrong;
  const Format format = asked_format(words);
  const std::vector<std::string> given = words;
  std::ranges::reverse(words);  // CLI11 takes the first word from the end
  try {
    app.parse(words);
  } catch (const ::CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help or version
    return usage_error(words_of(app, error, given), format, hint_of(app));
  }
  if (const std::string wrong = conflict(); !wrong.empty()) {
    return usage_error(wrong, format, hint_of(app));
  }
  return action();
}

int run_command_line(std::vector<std::string> words) {
  ::CLI::App app("Compiles attention specifications into fused GPU kernels", "attnc");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", "attnc " ATTN_VERSION, "Print the version of attnc");
  Action action;
  CLI::App commands(app);
  add_commands(commands, action);
  if (!words.empty() && words.front() == "complete") {
    fmt::print("{}", completions(describe(app), std::span(words).subspan(1)));
    return kOk;
  }
  return parse_and_run(app, action, std::move(words));
}

// The next file opened would get the number of a closed standard descriptor, and printed text would
// go to it. The replacement for standard output is opened read-only, so that writes to it fail.
void keep_standard_descriptors() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDWR};
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1) (void)open("/dev/null", kModes[descriptor]);
  }
}

int output_failed(int error) {
  return report(
      {ErrorCode::io, fmt::format("cannot write to standard output: {}", std::strerror(error))},
      Format::text);
}

int no_memory() {
  fmt::print(stderr, "error: out of memory\n");
  return exit_code(ErrorCode::io);
}

// Only printing and memory allocation throw; all other errors are a Status.
int run_and_flush(std::vector<std::string> words) {
  try {
    const int code = run_command_line(std::move(words));
    const bool failed = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !failed) return code;
    return code == kOk ? output_failed(errno) : code;
  } catch (const std::system_error& error) {
    return output_failed(error.code().value());
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::length_error&) {
    return no_memory();
  }
}

}  // namespace
}  // namespace attn::tools

int main(int argc, char** argv) {
  // Before any other initialization: the worker needs a minimal process.
  if (argc == 2 && std::string_view(argv[1]) == "worker") {
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO, attn::nvrtc::compile_for_client);
  }
  attn::worker::end_with_caller();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit fails, and is reported
  attn::tools::keep_standard_descriptors();
  if (argc == 2 && std::string_view(argv[1]) == "serve") {
    return attn::tools::serve_command_lines(STDIN_FILENO, attn::tools::run_and_flush);
  }
  return attn::tools::run_and_flush({argv + std::min(argc, 1), argv + argc});
}
