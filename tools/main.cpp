#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "runtime/worker/process.h"
#include "runtime/worker/worker.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/report.h"
#include "tools/usage.h"

namespace attn::tools {
namespace {

constexpr const char* kFooter =
    "\nExit codes: 0 success, 1 spec errors, 2 usage error, 3 valid but not supported, 4 CUDA, "
    "cuDNN, "
    "I/O\nor memory error, 5 verification mismatch, 6 unreadable plan file, 70 internal error.\n"
    "Run `attnc help COMMAND` for the options of a command.\n";

void add_commands(CLI::App& app, Action& action) {
  add_check(app, action);
  add_compile(app, action);
  add_explain(app, action);
  add_draw(app, action);
  add_report(app, action);
  add_run(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_support(app, action);
  add_inspect(app, action);
  add_fmt(app, action);
  add_opt(app, action);
  add_convert(app, action);
  add_explain_code(app, action);
  add_target(app, action);
  add_cache(app, action);
  add_version(app, action);
  add_help(app, action);
}

// Checked first: otherwise CLI11 reports a misspelt option as a missing one.
int parse_failed(const ::CLI::App& app, const ::CLI::ParseError& error) {
  const std::string unexpected = unexpected_argument(app);
  if (error.get_exit_code() == 0 || unexpected.empty()) return app.exit(error) == 0 ? kOk : kUsage;
  return usage_error(unexpected);
}

int run_command_line(int argc, char** argv) {
  ::CLI::App app("Compiles attention specifications into cuDNN plans", "attnc");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("-V,--version", "attnc " ATTN_VERSION, "Print the version of attnc");
  Action action;
  CLI::App commands(app);
  add_commands(commands, action);
  const std::string unknown = unknown_command(app, {argv + 1, argv + std::max(argc, 1)});
  if (!unknown.empty()) return usage_error(unknown);
  try {
    app.parse(argc, argv);
  } catch (const ::CLI::ParseError& error) {
    return parse_failed(app, error);
  }
  return action();
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
  return report({ErrorCode::io,
                 fmt::format("cannot write to standard output: {}", std::strerror(error)),
                 {},
                 {}},
                Format::text);
}

int no_memory() {
  fmt::print(stderr, "error: out of memory\n");
  return exit_code(ErrorCode::io);
}

// Only printing and memory allocation throw; all other errors are a Status.
int run_and_flush(int argc, char** argv) {
  try {
    const int code = run_command_line(argc, argv);
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
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO);
  }
  attn::worker::end_with_caller();
  attn::tools::keep_standard_descriptors();
  return attn::tools::run_and_flush(argc, argv);
}
