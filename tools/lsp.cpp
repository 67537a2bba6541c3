#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tools/command.h"
#include "tools/lsp/server.h"

namespace attn::tools {
namespace lsp_command {
namespace {

struct Options {
  bool stdio = false;
};

int run(const Options&) {
  std::signal(SIGPIPE, SIG_IGN);  // a client that is gone is an error of write()
  const lsp::Served served = lsp::serve(STDIN_FILENO, STDOUT_FILENO);
  if (served.is_busy) {
    (void)std::fflush(stderr);
    std::_Exit(served.exit_code);
  }
  return served.exit_code;
}

}  // namespace
}  // namespace lsp_command

void add_lsp(CLI::App& app, Action& action) {
  using namespace lsp_command;
  CLI::App* command = app.add_subcommand(
      "lsp", "Serve editors: the Language Server Protocol over standard input and output");
  // Editors add it, and there is no other way.
  auto options = std::make_shared<Options>();
  command->add_flag("--stdio", options->stdio,
                    "Accepted, as editors give it; nothing else is possible");
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
