// One process that runs command lines for a client, such as the Python package, which starts it
// once.
//
// The client starts `attnc serve` with one end of a pair of SOCK_SEQPACKET sockets as standard
// input. For each command it sends a byte over the other end, with one end of a pair of
// SOCK_STREAM sockets; over this it writes the request and shuts its side down:
//
//   {"arguments": ["check", "-"], "input": "..", "folder": "/..", "environment": {"PATH": ".."}}
//
// and reads a line, when the command has ended:
//
//   {"code": 0, "output": "..", "errors": ".."}   or "signal": 9 instead of a code
//
// A command runs in a child that this process forks: in the folder, with this environment and
// standard input. So commands run at the same time, none sees what another one has set, and one
// that crashes harms no other. One whose client closes its socket is killed. The process ends, and
// all commands with it, when the client does.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attn::tools {

// Runs one command line, without the name of the program; returns its exit code.
using CommandLine = std::function<int(std::vector<std::string> words)>;

// Serves the client at the other end of `socket` until it is gone. For a process with one thread.
// Returns the exit code.
int serve_command_lines(int socket, const CommandLine& run);

}  // namespace attn::tools
