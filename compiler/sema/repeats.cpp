#include "compiler/sema/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using diag::Code;
using support::quoted;

constexpr std::size_t kMostText = 80;  // of a clause in a message

// Whether each entry of a layout clause names a tensor, so that it may follow others.
bool of_tensors(const ast::Clause& clause) {
  const auto* layout = std::get_if<ast::LayoutClause>(&clause.body);
  return layout != nullptr &&
         std::ranges::all_of(layout->entries, [](const ast::LayoutEntry& entry) {
           return entry.tensor.has_value();
         });
}

// Whether two of the entries of a list begin with the same name.
bool has_duplicates(std::string_view list) {
  std::set<std::string_view> seen;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string_view name = list.substr(at, end - at);
    name.remove_prefix(std::min(name.find_first_not_of(" \t\r\n"), name.size()));
    if (!seen.insert(name.substr(0, name.find_first_of(" :=\t\r\n"))).second) return true;
    at = end + 1;
  }
  return false;
}

// What the clause lists, as it is written.
std::string listed(const ast::Clause& clause, const diag::Sink& sink) {
  const std::uint32_t begin = clause.keyword.span.end;
  std::string_view text = sink.source().text().substr(begin, clause.span.end - begin);
  if (text.ends_with(';')) text.remove_suffix(1);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
}

void repeated(const ast::Clause& first, const ast::Clause& second, diag::Sink& sink) {
  const std::string& word = second.keyword.text;
  auto& diagnostic = sink.report(Code::duplicate_clause, second.keyword.span,
                                 fmt::format("{} may appear only once", quoted(word)));
  diagnostic.labels.push_back({first.keyword.span, "first here"});
  const std::string_view lists[] = {"outputs", "grad", "lengths"};
  const bool is_list = contains(lists, word) || (word == "layout" && of_tensors(second));
  diagnostic.help = "remove one of them";
  if (sink.source().is_json()) return;
  const std::string both = fmt::format("{}, {}", listed(first, sink), listed(second, sink));
  if (is_list && both.size() <= kMostText && !has_duplicates(both)) {
    diagnostic.help = fmt::format("write `{} {};`", word, both);
    diagnostic.fixes.push_back(
        {diagnostic.help, {{first.span, fmt::format("{} {};", word, both)}, {second.span, ""}}});
  } else {
    diagnostic.fixes.push_back({"remove the second", {{second.span, ""}}});
  }
}

}  // namespace

void check_repeats(const ast::Spec& spec, diag::Sink& sink) {
  std::map<std::string, const ast::Clause*, std::less<>> seen;
  for (const ast::Clause& clause : spec.clauses) {
    const std::string& word = clause.keyword.text;
    const std::string_view once[] = {"dtype",     "layout",   "scale", "outputs", "align",
                                     "sink",      "dropout",  "grad",  "lengths", "deterministic",
                                     "normalize", "quantize", "shard", "weight",  "combine",
                                     "values",    "gather"};
    if (!contains(once, word)) continue;
    const auto [first, added] = seen.emplace(word, &clause);
    if (!added) repeated(*first->second, clause, sink);
  }
}

}  // namespace attn::sema
