// Messages of JSON-RPC 2.0 over a pair of file descriptors, framed as the Language Server Protocol
// does it ("Content-Length: N").
//
// Own code, since Debian 12 packages nothing that fits: libjsonrpccpp frames messages for HTTP and
// sockets, libjsonrpc-glib needs GLib and its variants, and the libraries for this protocol
// (lsp-framework, LspCpp) are not packaged.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/report.h"

namespace attn::tools::lsp {

// Error codes of JSON-RPC and of the protocol.
enum class RpcCode : int {
  parse_error = -32700,
  invalid_request = -32600,
  method_not_found = -32601,
  invalid_params = -32602,
  not_initialized = -32002,
  request_failed = -32803,
  content_modified = -32801,
  cancelled = -32800,
};

// Thrown by the handler of a request, and answered to the client.
struct RpcError {
  RpcCode code;
  std::string message;
};

// The body of a message, with null for what is nested deeper than kMostNesting: the library's
// copies and output of JSON recurse.
inline constexpr int kMostNesting = 200;
struct Message {
  Json json;  // is_discarded() if it was not JSON
  bool is_too_deep = false;
};
Message parse_message(const std::string& body);

class MessageReader {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 26;  // of one message

  explicit MessageReader(int descriptor) : descriptor_(descriptor) {}

  // The next message's body; nothing at the end of the input. Headers that are malformed are
  // skipped, and so are larger messages; standard error says so.
  std::optional<std::string> read();

 private:
  bool fill();
  std::optional<std::string> line();
  std::optional<std::string> body(std::size_t bytes);

  int descriptor_;
  std::string buffer_;
  std::size_t at_ = 0;  // what of the buffer was taken
};

// Writes messages, for one thread at a time.
class MessageWriter {
 public:
  explicit MessageWriter(int descriptor) : descriptor_(descriptor) {}

  void respond(const Json& id, const Json& result);
  void fail(const Json& id, const RpcError& error);
  void notify(const std::string& method, const Json& params);

  bool is_broken() const { return is_broken_; }  // nobody reads

 private:
  void write(const Json& message);

  int descriptor_;
  bool is_broken_ = false;
};

}  // namespace attn::tools::lsp
