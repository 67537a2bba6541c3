// A JSON reader that keeps the span of each value; parse_json builds on it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/diag/diagnostics.h"

namespace attn::ast {

enum class JsonKind : std::uint8_t { null, boolean, number, string, array, object };

struct JsonMember;

struct JsonValue {
  JsonKind kind = JsonKind::null;
  support::Span span;  // of a string: without quotes
  std::string text;    // the value of a string; the spelling of a number or literal
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;  // in text order; keys may repeat

  const JsonMember* find(std::string_view key) const;  // the first, or nullptr
};

struct JsonMember {
  std::string key;
  support::Span key_span;
  JsonValue value;
};

// "a string", "an object", ... for messages.
std::string_view in_words(JsonKind kind);

// Reads one JSON value (RFC 8259) that is the whole text. Returns nullopt after reporting E0110, or
// E0105 if it is nested too deeply.
std::optional<JsonValue> read_json(const support::Source& source, diag::Sink& sink);

// Whether `text` is a non-negative number in JSON.
bool is_json_number(std::string_view text);

}  // namespace attn::ast
