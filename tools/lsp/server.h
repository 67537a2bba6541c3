// A language server for specs: the Language Server Protocol 3.17 over two file descriptors.
#pragma once

namespace attn::tools::lsp {

// Serves until the client says `exit` or the input ends. Returns the exit code: 1 for an `exit`
// without a `shutdown` before it, as the protocol asks. Writes messages to `output` alone, and
// remarks about broken ones to standard error. A check may still be running in another thread when
// it returns: `is_busy` says so, and then the process must end without running destructors.
struct Served {
  int exit_code = 0;
  bool is_busy = false;
};
Served serve(int input, int output);

}  // namespace attn::tools::lsp
