// Reads untrusted JSON: limits size, depth and number of values, throws nothing, and records the
// first error with its path. Readers check the Failure once, at the end; after an error every read
// returns a default.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::json {

struct Limits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t depth = 32;
  std::size_t members = 64;                   // per object
  std::size_t values = std::size_t{1} << 18;  // in total
};

// Rejects duplicate keys, trailing text, numbers out of range and bytes that are not UTF-8. Errors:
// invalid_argument.
Result<nlohmann::json> parse(std::string_view text, const Limits& limits = {});

// The first error.
class Failure {
 public:
  bool ok() const { return !error_.has_value(); }
  void record(const std::string& path, std::string_view what);
  // Errors: invalid_argument, "$.nodes[3].x: expected an integer", payload {"path":
  // "$.nodes[3].x"}.
  Status status() const;

 private:
  std::optional<Error> error_;
};

// A value and its path. The JSON and the Failure must outlive it.
class Value {
 public:
  Value(const nlohmann::json& node, Failure& failure) : node_(&node), failure_(&failure) {}

  // A required member.
  Value operator[](std::string_view key) const;
  bool has(std::string_view key) const;
  // Fails unless this is an object with only these members.
  void only(std::span<const std::string_view> keys) const;
  void only(std::initializer_list<std::string_view> keys) const {
    only(std::span(keys.begin(), keys.size()));
  }

  std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  bool boolean() const;
  double number() const;     // as written by of_number
  std::string text() const;  // as written by of_text
  std::vector<std::int64_t> integers() const;

  // An enum value by name; `parse` returns an optional.
  template <typename Parse>
  auto named(Parse parse) const {
    const auto value = parse(std::string_view(text()));
    if (!value) fail("is not a known name");
    return value.value_or(typename decltype(value)::value_type{});
  }

  // Reads each element in turn, until one fails.
  template <typename Read>
  auto list(Read read) const {
    std::vector<decltype(read(*this))> values;
    const std::size_t count = size();
    for (std::size_t i = 0; i < count && failure_->ok(); ++i) values.push_back(read(at(i)));
    return values;
  }

  void fail(std::string_view what) const { failure_->record(path_, what); }

 private:
  Value(const nlohmann::json& node, Failure& failure, std::string path)
      : node_(&node), failure_(&failure), path_(std::move(path)) {}

  std::size_t size() const;  // of an array; fails if it is not one
  Value at(std::size_t index) const;

  const nlohmann::json* node_;
  Failure* failure_;
  std::string path_ = "$";
};

// A string, or {"hex": "..."} if the bytes are not UTF-8.
nlohmann::ordered_json of_text(std::string_view bytes);

// A number, exact in both directions; "inf", "-inf" or "nan" if JSON has no number for it.
nlohmann::ordered_json of_number(double value);

}  // namespace attn::json
