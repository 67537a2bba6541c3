// JSON text as values with places: what parse_json reads a spec from.
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
  support::Span span;  // of a string: without its quotes
  std::string text;    // a string's value; the spelling of a number or a word
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

// RFC 8259, one value in the whole text; nothing after reporting E0110, or E0105 when it is nested
// deeper than any spec.
std::optional<JsonValue> read_json(const support::Source& source, diag::Sink& sink);

// Whether this is how JSON spells a number that is not negative.
bool is_json_number(std::string_view text);

}  // namespace attn::ast
