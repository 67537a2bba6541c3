#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "runtime/worker/worker.h"
#include "tools/command.h"
#include "tools/help.h"

namespace attn::tools {
namespace {

constexpr const char* kFooter =
    "\nExit codes: 0 ok, 1 the spec has errors, 2 usage, 3 valid but not supported there, 4 CUDA, "
    "cuDNN\nor another failure of the surroundings, 5 verification mismatch, 6 unreadable plan "
    "file, 70 a bug.\n`attnc COMMAND --help` tells more.\n";

void add_commands(CLI::App& app, Action& action) {
  add_check(app, action);
  add_compile(app, action);
  add_explain(app, action);
  add_run(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_inspect(app, action);
  add_fmt(app, action);
  add_convert(app, action);
  add_explain_code(app, action);
  add_target(app, action);
  add_version(app, action);
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Compiles attention written as a specification into cuDNN plans", "attnc");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  Action action;
  add_commands(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return action();
}

}  // namespace
}  // namespace attn::tools

int main(int argc, char** argv) {
  // Before anything else is initialised: the worker must start as bare as it can.
  if (argc == 2 && std::string_view(argv[1]) == "worker") {
    return attn::worker::serve(STDIN_FILENO, STDOUT_FILENO);
  }
  return attn::tools::run_command_line(argc, argv);
}
