#include "runtime/graph/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/graph/listing.h"

namespace attn::json {
namespace {

using Node = nlohmann::json;

// Builds the value, and stops at the first error.
class Builder {
 public:
  explicit Builder(const Limits& limits) : limits_(limits) {}

  bool null() { return add(Node()); }
  bool boolean(bool value) { return add(Node(value)); }
  bool number_integer(Node::number_integer_t value) { return add(Node(value)); }
  bool number_unsigned(Node::number_unsigned_t value) { return add(Node(value)); }
  bool number_float(Node::number_float_t value, const std::string&) { return add(Node(value)); }
  bool string(std::string& value) { return add(Node(std::move(value))); }
  bool binary(Node::binary_t&) { return stop("binary values are not JSON"); }
  bool start_object(std::size_t) { return open(Node::object()); }
  bool start_array(std::size_t) { return open(Node::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Node& object = *open_.back();
    if (object.size() >= limits_.members) return stop("an object has too many members");
    if (object.contains(name)) return stop("a key occurs twice");
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Node::exception& why) {
    const std::string_view text = why.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const std::size_t start = text.find("] ");
    return stop(fmt::format("byte {}: {}", position,
                            start == std::string_view::npos ? text : text.substr(start + 2)));
  }

  const std::string& error() const { return error_; }
  Node take() { return std::move(root_); }

 private:
  bool stop(std::string what) {
    error_ = std::move(what);
    return false;
  }

  Node* place(Node value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Node& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool add(Node value) {
    if (++values_ > limits_.values) return stop("there are too many values");
    place(std::move(value));
    return true;
  }

  // Pointers to open containers stay valid: the parent gets no further element until they close.
  bool open(Node value) {
    if (++values_ > limits_.values) return stop("there are too many values");
    if (open_.size() >= limits_.depth) return stop("it is nested too deeply");
    open_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Limits limits_;
  Node root_;
  std::vector<Node*> open_;
  std::string key_;
  std::size_t values_ = 0;
  std::string error_;
};

const Node& nothing() {
  static const Node null;
  return null;
}

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::optional<int> digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

std::optional<std::string> bytes_of(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const auto high = digit_of(hex[i]);
    const auto low = digit_of(hex[i + 1]);
    if (!high || !low) return std::nullopt;
    bytes += static_cast<char>(*high * 16 + *low);
  }
  return bytes;
}

bool is_utf8(std::string_view bytes) {
  // Only the library can tell whether it accepts the bytes, and only by dump().
  try {
    (void)Node(bytes).dump();
    return true;
  } catch (const Node::type_error&) {
    return false;
  }
}

}  // namespace

Result<Node> parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.bytes) {
    return {ErrorCode::invalid_argument,
            fmt::format("JSON text of {} bytes is longer than the allowed "
                        "{}",
                        text.size(), limits.bytes)};
  }
  Builder builder(limits);
  if (Node::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  return {ErrorCode::invalid_argument, "invalid JSON: " + builder.error()};
}

void Failure::record(const std::string& path, std::string_view what) {
  if (error_) return;
  error_ = Error{ErrorCode::invalid_argument, fmt::format("{}: {}", path, what)};
  error_->payload = nlohmann::ordered_json{{"path", path}}.dump();
}

Status Failure::status() const { return error_ ? Status(*error_) : Status(); }

Value Value::operator[](std::string_view key) const {
  if (node_->is_object()) {
    const auto found = node_->find(key);
    if (found != node_->end()) return {*found, *failure_, fmt::format("{}.{}", path_, key)};
  }
  fail(node_->is_object() ? fmt::format("\"{}\" is missing", key) : "expected an object");
  return {nothing(), *failure_, path_};
}

bool Value::has(std::string_view key) const { return node_->is_object() && node_->contains(key); }

void Value::only(std::span<const std::string_view> keys) const {
  if (!node_->is_object()) return fail("expected an object");
  for (const auto& [key, value] : node_->items()) {
    if (std::ranges::find(keys, key) == keys.end()) {
      constexpr std::size_t kShown = 64;
      return fail(quoted(std::string_view(key).substr(0, kShown)) + " is not a known member");
    }
  }
}

std::int64_t Value::integer(std::int64_t low, std::int64_t high) const {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!node_->is_number_integer()) {
    fail("expected an integer");
    return 0;
  }
  const bool too_large = node_->is_number_unsigned() && node_->get<std::uint64_t>() > kLargest;
  const std::int64_t value = too_large ? 0 : node_->get<std::int64_t>();
  if (!too_large && value >= low && value <= high) return value;
  fail("is out of range");
  return 0;
}

bool Value::boolean() const {
  if (node_->is_boolean()) return node_->get<bool>();
  fail("expected true or false");
  return false;
}

double Value::number() const {
  if (node_->is_number_float()) return node_->get<double>();
  if (node_->is_string()) {
    const auto& name = node_->get_ref<const std::string&>();
    if (name == "inf") return std::numeric_limits<double>::infinity();
    if (name == "-inf") return -std::numeric_limits<double>::infinity();
    if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  // Integers are exact up to 2^53.
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  if (node_->is_number_integer()) return static_cast<double>(integer(-kExact, kExact));
  fail("expected a number");
  return 0;
}

std::string Value::text() const {
  if (node_->is_string()) return node_->get<std::string>();
  if (has("hex") && node_->size() == 1 && node_->at("hex").is_string()) {
    if (auto bytes = bytes_of(node_->at("hex").get_ref<const std::string&>())) return *bytes;
  }
  fail("expected a string");
  return "";
}

std::vector<std::int64_t> Value::integers() const {
  return list([](const Value& value) { return value.integer(); });
}

std::size_t Value::size() const {
  if (node_->is_array()) return node_->size();
  fail("expected an array");
  return 0;
}

Value Value::at(std::size_t index) const {
  return {(*node_)[index], *failure_, fmt::format("{}[{}]", path_, index)};
}

nlohmann::ordered_json of_text(std::string_view bytes) {
  if (is_utf8(bytes)) return bytes;
  return {{"hex", hex_of(bytes)}};
}

nlohmann::ordered_json of_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace attn::json
