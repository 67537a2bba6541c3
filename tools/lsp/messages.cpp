#include "tools/lsp/messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "compiler/support/text.h"

namespace attn::tools::lsp {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;
constexpr std::size_t kLongestHeader = 4096;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The number after "Content-Length:", in any case.
std::optional<std::size_t> content_length(std::string_view line) {
  constexpr std::string_view kName = "content-length:";
  if (line.size() < kName.size()) return std::nullopt;
  for (std::size_t i = 0; i < kName.size(); ++i) {
    if (lower(line[i]) != kName[i]) return std::nullopt;
  }
  line.remove_prefix(kName.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), length);
  if (error != std::errc()) return std::nullopt;
  return length;
}

}  // namespace

Message parse_message(const std::string& body) {
  Message message;
  std::string kept;
  int depth = 0;
  bool in_string = false;
  const auto keep = [&](char c) {
    if (depth <= kMostNesting) kept += c;
  };
  for (std::size_t at = 0; at < body.size(); ++at) {
    const char c = body[at];
    if (in_string) {
      keep(c);
      if (c == '\\' && at + 1 < body.size()) keep(body[++at]);
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if ((c == '[' || c == '{') && ++depth == kMostNesting + 1) {
      kept += "null";
      message.is_too_deep = true;
    }
    keep(c);
    if (c == ']' || c == '}') --depth;
  }
  message.json = Json::parse(kept, nullptr, false);
  return message;
}

bool MessageReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  char chunk[kChunk];
  ssize_t count = 0;
  do {
    count = ::read(descriptor_, chunk, sizeof chunk);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  buffer_.append(chunk, static_cast<std::size_t>(count));
  return true;
}

// A line without its end. Of one that is too long, the last part.
std::optional<std::string> MessageReader::line() {
  for (;;) {
    const std::size_t end = buffer_.find('\n', at_);
    if (end != std::string::npos) {
      std::string found = buffer_.substr(at_, end - at_);
      at_ = end + 1;
      if (found.ends_with('\r')) found.pop_back();
      return found;
    }
    if (buffer_.size() - at_ > kLongestHeader) at_ = buffer_.size();
    if (!fill()) return std::nullopt;
  }
}

std::optional<std::string> MessageReader::body(std::size_t bytes) {
  std::string found;
  const bool is_kept = bytes <= kMostBytes;
  if (!is_kept) fmt::print(stderr, "attnc lsp: skipped a message of {} bytes\n", bytes);
  for (std::size_t left = bytes; left > 0;) {
    if (at_ == buffer_.size() && !fill()) return std::nullopt;
    const std::size_t count = std::min(left, buffer_.size() - at_);
    if (is_kept) found.append(buffer_, at_, count);
    at_ += count;
    left -= count;
  }
  return found;
}

std::optional<std::string> MessageReader::read() {
  std::optional<std::size_t> length;
  for (;;) {
    const std::optional<std::string> header = line();
    if (!header) return std::nullopt;
    if (!header->empty()) {
      if (const auto found = content_length(*header)) {
        length = found;
      } else if (header->find(':') == std::string::npos) {
        fmt::print(stderr, "attnc lsp: skipped the header {}\n", support::quoted(*header));
      }
      continue;
    }
    if (!length) continue;
    std::optional<std::string> found = body(*length);
    if (!found || *length <= kMostBytes) return found;
    length.reset();
  }
}

void MessageWriter::respond(const Json& id, const Json& result) {
  write({{"jsonrpc", "2.0"}, {"id", id}, {"result", result}});
}

void MessageWriter::fail(const Json& id, const RpcError& error) {
  write({{"jsonrpc", "2.0"},
         {"id", id},
         {"error", {{"code", static_cast<int>(error.code)}, {"message", error.message}}}});
}

void MessageWriter::notify(const std::string& method, const Json& params) {
  write({{"jsonrpc", "2.0"}, {"method", method}, {"params", params}});
}

void MessageWriter::write(const Json& message) {
  // A file name may not be UTF-8.
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string frame = fmt::format("Content-Length: {}\r\n\r\n{}", text.size(), text);
  for (std::size_t at = 0; at < frame.size() && !is_broken_;) {
    const ssize_t count = ::write(descriptor_, frame.data() + at, frame.size() - at);
    if (count < 0 && errno == EINTR) continue;
    is_broken_ = count <= 0;
    if (!is_broken_) at += static_cast<std::size_t>(count);
  }
}

}  // namespace attn::tools::lsp
