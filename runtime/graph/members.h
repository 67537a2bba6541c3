// JSON and canonical text of structs whose members are listed once, by a function in the namespace
// of the struct:
//
//   template <json::Like<Knob> Self, typename Visit>
//   void members(Self& knob, Visit& visit) {
//     auto& [type, value] = knob;  // all fields: a new one breaks the build until it is here
//     visit("type", type);
//     visit("value", value);
//   }
//
// In the order of the JSON text, a visitor is called with
//
//   visit(name, field)                  a member that is always there
//   visit.optional(name, field, usual)  a member that is left out if the field equals `usual`, by
//                                       default empty or zero; a missing member reads as `usual`
//   visit.told(name, field)             for people: not part of canonical text
//   visit.optionally_told(name, field)  the same, left out where the field is empty
//   visit.position(field)               the same, a SourcePos, left out if there is none
//   visit.kind(name, word)              first: a member with this word, which tells the struct from
//                                       the other alternatives of a variant. Without one, the name
//                                       of the first member does
//   visit.spread(variant)               the members of the alternative, as members of the object
//   visit.input(name, uid), visit.named_input(..), visit.output(..)
//                                       the tensors of a graph's node; left out where optional ones
//                                       are absent
//   visit.within(name, field, low, high) a number; a reader refuses others
//   visit.constant(name, number)        always this number
//   visit.map(name, map, a, b)          as a list of objects with members a, the key, and b
//   visit.object(name, inner)           an object of its own; inner(visit) gives its members
//   visit.derived(name, make)           a member that follows from others: a writer stores make(),
//                                       unless it is null; callers of a reader compare the values
//   visit.must(name, holds, what)       a further condition on the member before: a reader refuses
//                                       the object if the condition does not hold
//   visit.paired(name, a, list, b, told) two lists of one length, as a list of objects with members
//                                       a and b, of which b is for people
//
// Members are text, numbers, bool, enums (kParse), structs with members, variants of these, and
// lists of any of them.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/source_pos.h"
#include "runtime/graph/json_value.h"

namespace attn::json {

template <typename Self, typename Struct>
concept Like = std::same_as<std::remove_const_t<Self>, Struct>;

// The function that reads an enum's name, as to_string writes it; null: none.
template <typename Enum>
inline constexpr std::nullptr_t kParse = nullptr;
template <>
inline constexpr auto kParse<DType> = &parse_dtype;

template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;
// Lists of pairs of numbers, written as one list: [begin, end, begin, end, ..].
template <typename T>
inline constexpr bool kIsListOfIntervals = false;
template <typename T>
inline constexpr bool kIsArray = false;
template <typename T, std::size_t kSize>
inline constexpr bool kIsArray<std::array<T, kSize>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... Alternatives>
inline constexpr bool kIsVariant<std::variant<Alternatives...>> = true;

// The tensors of a node are members like others, for visitors that are of this class.
template <typename Visitor>
class TensorsAsMembers {
 public:
  void input(std::string_view name, auto& uid) { member(name, uid); }
  void named_input(std::string_view name, auto& uid) { member(name, uid); }
  void output(std::string_view name, auto& uid) { member(name, uid); }

 private:
  template <typename T>
  void member(std::string_view name, T& uid) {
    auto& visit = static_cast<Visitor&>(*this);
    if constexpr (kIsOptional<std::remove_const_t<T>>) {
      visit.optional(name, uid);
    } else {
      visit(name, uid);
    }
  }
};

// Writes a struct as a JSON object.
class Writer : public TensorsAsMembers<Writer> {
 public:
  using Json = nlohmann::ordered_json;

  // Canonical: without what is for people.
  explicit Writer(bool canonical = false) : canonical_(canonical) {}

  template <typename T>
  Json json_of(const T& field) const {
    if constexpr (std::same_as<T, std::string>) {
      return of_text(field);
    } else if constexpr (std::same_as<T, double>) {
      return of_number(field);
    } else if constexpr (std::is_enum_v<T>) {
      return to_string(field);
    } else if constexpr (kIsOptional<T>) {
      return json_of(*field);
    } else if constexpr (kIsListOfIntervals<T>) {
      Json ends = Json::array();
      for (const auto& [begin, end] : field) ends.push_back(begin), ends.push_back(end);
      return ends;
    } else if constexpr (kIsList<T>) {
      Json list = Json::array();
      for (const auto& each : field) list.push_back(json_of(each));
      return list;
    } else if constexpr (std::is_arithmetic_v<T> || kIsArray<T>) {
      return field;
    } else {
      Writer writer(canonical_);
      writer.spread(field);
      return std::move(writer.object_);
    }
  }

  template <typename T>
  void operator()(std::string_view name, const T& field) {
    object_[std::string(name)] = json_of(field);
  }
  template <typename T>
  void optional(std::string_view name, const T& field, const std::type_identity_t<T>& usual = {}) {
    if (field != usual) (*this)(name, field);
  }
  void told(std::string_view name, const auto& field) {
    if (!canonical_) (*this)(name, field);
  }
  void optionally_told(std::string_view name, const auto& field) {
    if (!canonical_) optional(name, field);
  }
  void position(const SourcePos& pos) {
    if (!canonical_ && (pos.line != 0 || pos.column != 0)) object_["pos"] = {pos.line, pos.column};
  }
  void kind(std::string_view name, std::string_view word) { object_[std::string(name)] = word; }
  void within(std::string_view name, std::int64_t field, std::int64_t, std::int64_t) {
    (*this)(name, field);
  }
  void constant(std::string_view name, std::int64_t number) { (*this)(name, number); }
  template <typename T>
  void map(std::string_view name, const std::map<std::string, T>& map, std::string_view key,
           std::string_view value) {
    Json& list = object_[std::string(name)] = Json::array();
    for (const auto& [its_key, its_value] : map) {
      list.push_back(
          {{std::string(key), of_text(its_key)}, {std::string(value), json_of(its_value)}});
    }
  }
  void object(std::string_view name, const auto& inner) {
    Writer writer(canonical_);
    inner(writer);
    object_[std::string(name)] = std::move(writer.object_);
  }
  void derived(std::string_view name, const auto& make) {
    if (Json made = make(); !made.is_null()) object_[std::string(name)] = std::move(made);
  }
  void must(std::string_view, bool, std::string_view) {}
  template <typename T>
  void spread(const T& field) {
    if constexpr (kIsVariant<T>) {
      return std::visit([this](const auto& alternative) { spread(alternative); }, field);
    } else {
      if constexpr (requires { write_canonical(*this, field); }) {
        if (canonical_) return write_canonical(*this, field);
      }
      members(field, *this);
    }
  }
  void paired(std::string_view name, std::string_view first, const std::vector<std::string>& list,
              std::string_view second, const std::vector<std::string>& told);

 private:
  bool canonical_;
  Json object_ = Json::object();
};

// What tells a struct from the other alternatives of a variant: the first member, and its word if
// it is a kind.
struct Mark : TensorsAsMembers<Mark> {
  std::string_view name{}, word{};

  template <typename T>
  void operator()(std::string_view first, const T&) {
    take(first, "");
  }
  void kind(std::string_view first, std::string_view its_word) { take(first, its_word); }
  void optional(std::string_view, const auto&...) {}
  void told(std::string_view first, const auto&) { take(first, ""); }
  void optionally_told(std::string_view, const auto&) {}
  void position(const SourcePos&) {}
  void within(std::string_view first, const auto&...) { take(first, ""); }
  void object(std::string_view first, const auto&) { take(first, ""); }
  void must(std::string_view, bool, std::string_view) {}
  void spread(const auto&) {}
  void paired(std::string_view first, const auto&...) { take(first, ""); }

 private:
  void take(std::string_view first, std::string_view its_word) {
    if (name.empty()) name = first, word = its_word;
  }
};

template <typename T>
Mark mark_of() {
  T each{};
  Mark mark;
  members(each, mark);
  return mark;
}

// Reads a struct from a JSON object. Errors are recorded in the value's Failure: members that are
// missing or unknown, and values of another form.
class Reader : public TensorsAsMembers<Reader> {
 public:
  explicit Reader(const Value& value) : value_(value) {}

  template <typename T>
  static void read(const Value& value, T& field) {
    if constexpr (std::same_as<T, std::string>) {
      field = value.text();
    } else if constexpr (std::same_as<T, bool>) {
      field = value.boolean();
    } else if constexpr (std::same_as<T, double>) {
      field = value.number();
    } else if constexpr (std::is_integral_v<T>) {
      using Range = std::numeric_limits<T>;
      field = static_cast<T>(value.integer(Range::min(), Range::max()));
    } else if constexpr (std::is_enum_v<T>) {
      field = value.named(kParse<T>);
    } else if constexpr (kIsOptional<T>) {
      read(value, field.emplace());
    } else if constexpr (kIsListOfIntervals<T>) {
      read_intervals(value, field);
    } else if constexpr (kIsList<T>) {
      field = value.list(&read_one<typename T::value_type>);
    } else if constexpr (kIsArray<T>) {
      read_array(value, field);
    } else {
      Reader reader(value);
      reader.spread(field);
      value.only(reader.names_);
    }
  }
  template <typename T>
  static T read_one(const Value& value) {
    T field{};
    read(value, field);
    return field;
  }

  template <typename T>
  void operator()(std::string_view name, T& field) {
    names_.push_back(name);
    read(value_[name], field);
  }
  template <typename T>
  void optional(std::string_view name, T& field, const std::type_identity_t<T>& usual = {}) {
    names_.push_back(name);
    field = usual;
    if (value_.has(name)) read(value_[name], field);
  }
  template <typename T>
  void told(std::string_view name, T& field) {
    (*this)(name, field);
  }
  template <typename T>
  void optionally_told(std::string_view name, T& field) {
    optional(name, field);
  }
  void position(SourcePos& pos);
  void kind(std::string_view name, std::string_view) { names_.push_back(name); }
  template <typename T>
  void within(std::string_view name, T& field, std::int64_t low, std::int64_t high) {
    names_.push_back(name);
    field = static_cast<T>(value_[name].integer(low, high));
  }
  void constant(std::string_view name, std::int64_t number) {
    names_.push_back(name);
    (void)value_[name].integer(number, number);
  }
  template <typename T>
  void map(std::string_view name, std::map<std::string, T>& map, std::string_view key,
           std::string_view value) {
    names_.push_back(name);
    (void)value_[name].list([&](const Value& entry) {
      entry.only({key, value});
      if (!map.emplace(entry[key].text(), read_one<T>(entry[value])).second)
        entry[key].fail("occurs twice");
      return 0;
    });
  }
  void object(std::string_view name, const auto& inner) {
    names_.push_back(name);
    Reader reader(value_[name]);
    inner(reader);
    reader.value_.only(reader.names_);
  }
  void derived(std::string_view name, const auto&) { names_.push_back(name); }
  void must(std::string_view name, bool holds, std::string_view what) {
    if (!holds) value_[name].fail(what);
  }
  template <typename T>
  void spread(T& field) {
    if constexpr (kIsVariant<T>) {
      read_alternative(field);
    } else {
      members(field, *this);
    }
  }
  void paired(std::string_view name, std::string_view first, std::vector<std::string>& list,
              std::string_view second, std::vector<std::string>& told);

 private:
  template <typename Interval>
  static void read_intervals(const Value& value, std::vector<Interval>& field) {
    const std::vector<std::int64_t> ends = value.integers();
    if (ends.size() % 2 != 0) return value.fail("is not an ascending set of intervals");
    for (std::size_t i = 0; i < ends.size(); i += 2) field.push_back({ends[i], ends[i + 1]});
  }
  template <std::size_t kSize>
  static void read_array(const Value& value, std::array<std::int64_t, kSize>& field) {
    const std::vector<std::int64_t> numbers = value.integers();
    if (numbers.size() != kSize)
      return value.fail("does not have " + std::to_string(kSize) + " numbers");
    std::ranges::copy(numbers, field.begin());
  }
  // Whether the value has the mark of that alternative.
  bool is(const Mark& mark) const {
    return value_.has(mark.name) && (mark.word.empty() || value_[mark.name].text() == mark.word);
  }
  template <typename... Alternatives>
  void read_alternative(std::variant<Alternatives...>& variant) {
    const auto read_if = [&]<typename T>(std::type_identity<T>) {
      if (!is(mark_of<T>())) return false;
      members(variant.template emplace<T>(), *this);
      return true;
    };
    if (!(read_if(std::type_identity<Alternatives>()) || ...))
      fail_unmarked({mark_of<Alternatives>()...});
  }
  void fail_unmarked(const std::vector<Mark>& marks) const;

  Value value_;
  std::vector<std::string_view> names_;  // of members that may be there
};

template <typename T>
nlohmann::ordered_json json_of(const T& field) {
  return Writer().json_of(field);
}

// Errors are recorded in the value's Failure.
template <typename T>
T read_members(const Value& value) {
  return Reader::read_one<T>(value);
}

// Reads a whole text. Errors: invalid_argument with the JSON path.
template <typename T>
Result<T> parse_members(std::string_view text) {
  ATTN_ASSIGN(const nlohmann::json document, parse(text));
  Failure failure;
  T read = read_members<T>({document, failure});
  ATTN_RETURN_IF_ERROR(failure.status());
  return read;
}

// The JSON text of all members but those for people. Different structs have different texts. One
// whose text is another one has a function write_canonical(Writer&, const Struct&) beside its
// members.
template <typename T>
std::string canonical_text(const T& field) {
  return Writer(true).json_of(field).dump();
}

}  // namespace attn::json
