// Reading JSON of unknown origin: bounded in size, depth and number of values, nothing thrown, and
// the first thing that is wrong kept with its path. A reader asks for what it wants and looks at
// the Failure once, at the end; after a failure every read gives a default.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace attn::json {

struct Limits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t depth = 32;
  std::size_t members = 64;                   // of one object
  std::size_t values = std::size_t{1} << 18;  // in all
};

// Duplicate keys, text after the value, numbers that do not fit and bytes that are not UTF-8 are
// refused. Errors: invalid_argument.
Result<nlohmann::json> parse(std::string_view text, const Limits& limits = {});

// The first thing that was wrong.
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

// A value and where it stands. Both the JSON and the Failure must outlive it.
class Value {
 public:
  Value(const nlohmann::json& node, Failure& failure) : node_(&node), failure_(&failure) {}

  // A member that must be there.
  Value operator[](std::string_view key) const;
  bool has(std::string_view key) const;
  // Fails unless this is an object with no other members than these.
  void only(std::initializer_list<std::string_view> keys) const;

  std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  bool boolean() const;
  double number() const;     // what of_number writes
  std::string text() const;  // what of_text writes
  std::vector<std::int64_t> integers() const;

  // The value of an enumeration by its name: parse(text) gives an optional.
  template <typename Parse>
  auto named(Parse parse) const {
    const auto value = parse(std::string_view(text()));
    if (!value) fail("is not one of the known names");
    return value.value_or(typename decltype(value)::value_type{});
  }

  // One element after the other, until something fails.
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

  std::size_t size() const;  // of an array; fails when it is none
  Value at(std::size_t index) const;

  const nlohmann::json* node_;
  Failure* failure_;
  std::string path_ = "$";
};

// A string; {"hex": "..."} when the bytes are not UTF-8, which JSON cannot hold.
nlohmann::ordered_json of_text(std::string_view bytes);

// A number, exact both ways; "inf", "-inf" or "nan" when JSON has none for it.
nlohmann::ordered_json of_number(double value);

}  // namespace attn::json
