#include "runtime/graph/members.h"

#include <fmt/format.h>

namespace attn::json {

void Writer::paired(std::string_view name, std::string_view first,
                    const std::vector<std::string>& list, std::string_view second,
                    const std::vector<std::string>& told) {
  if (canonical_) return (*this)(name, list);
  Json& pairs = object_[std::string(name)] = Json::array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    pairs.push_back(
        {{std::string(first), of_text(list[i])}, {std::string(second), of_text(told[i])}});
  }
}

void Reader::position(SourcePos& pos) {
  constexpr const char* kName = "pos";
  names_.emplace_back(kName);
  pos = {};
  if (!value_.has(kName)) return;
  const auto numbers = value_[kName].list([](const Value& number) {
    return static_cast<std::uint32_t>(number.integer(0, std::numeric_limits<std::uint32_t>::max()));
  });
  if (numbers.size() != 2) return value_[kName].fail("expected a line and a column");
  pos = {numbers[0], numbers[1]};
}

void Reader::paired(std::string_view name, std::string_view first, std::vector<std::string>& list,
                    std::string_view second, std::vector<std::string>& told) {
  names_.push_back(name);
  (void)value_[name].list([&](const Value& pair) {
    pair.only({first, second});
    list.push_back(pair[first].text());
    told.push_back(pair[second].text());
    return 0;
  });
}

void Reader::fail_unmarked(const std::vector<Mark>& marks) const {
  if (!marks.front().word.empty()) return value_[marks.front().name].fail("is not a known name");
  std::string names;
  for (const Mark& mark : marks) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", mark.name);
  }
  value_.fail("has none of " + names);
}

}  // namespace attn::json
