#include "tools/edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

#include "compiler/ast/parse.h"
#include "compiler/ast/print.h"
#include "compiler/diag/diagnostics.h"

namespace attn::tools {
namespace {

struct EditOption {
  const char* name;
  const char* keyword;
  const char* type;  // null: a flag
  const char* description;
};
constexpr EditOption kEdits[] = {
    {"--dtype", "dtype", "T", "Take this dtype of q, k, v and o instead of the spec's"},
    {"--layout", "layout", "LAYOUT",
     "Take this layout instead of the spec's: bhsd, or one for each tensor, as in "
     "'q: bshd, k: strides(4096, 128, 512, 1)'"},
    {"--outputs", "outputs", "NAMES", "Take these outputs instead of the spec's, as in o,lse"},
    {"--lengths", "lengths", "SIDES", "Add lengths of each batch: q, kv, or q,kv"},
    {"--gradients", "grad", "NAMES", "Take these gradients instead of the spec's, as in q,k,v"},
    {"--deterministic", "deterministic", nullptr,
     "Compute gradients that are bitwise the same in every run"},
};

std::string clause_text(const std::string& keyword, const std::string& value) {
  return value.empty() ? keyword + ";" : fmt::format("{} {};", keyword, value);
}

const EditOption& option_of(const std::string& keyword) {
  return *std::ranges::find_if(kEdits,
                               [&](const EditOption& one) { return one.keyword == keyword; });
}

std::string words_of(const std::string& keyword, const std::string& value) {
  const EditOption& option = option_of(keyword);
  return option.type == nullptr ? option.name : fmt::format("{} {}", option.name, value);
}

// The clause that an option stands for.
Result<ast::Clause> clause_of(const std::string& keyword, const std::string& value) {
  const std::string written = clause_text(keyword, value);
  const support::Source source("<option>", fmt::format("attention option {{ {} }}", written));
  diag::Sink unheard(source);
  std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (spec && spec->clauses.size() == 1 && spec->clauses.front().keyword.text == keyword) {
    return std::move(spec->clauses.front());
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("{}: not a clause `{}`", words_of(keyword, value), written),
               {fmt::format("write it as the value of the clause `{}` in a spec (docs/language.md)",
                            keyword)}};
}

// Sides that the spec has keep their defaults, and keys and values their types beside another one
// of all.
void merge(const ast::Clause& old, ast::Clause& made) {
  const auto* types = std::get_if<ast::DtypeClause>(&old.body);
  auto* type = std::get_if<ast::DtypeClause>(&made.body);
  if (types != nullptr && type != nullptr && type->entries.empty()) type->entries = types->entries;
  const auto* had = std::get_if<ast::LengthsClause>(&old.body);
  auto* wanted = std::get_if<ast::LengthsClause>(&made.body);
  if (had == nullptr || wanted == nullptr) return;
  for (const ast::LengthsEntry& entry : had->entries) {
    std::erase_if(wanted->entries,
                  [&](const auto& one) { return one.side.text == entry.side.text; });
    wanted->entries.push_back(entry);
  }
}

// The clause in one line.
std::string body_of(const ast::Clause& clause) {
  ast::Spec alone;
  alone.name.text = "option";
  alone.clauses = {clause};
  std::istringstream words(ast::to_dsl(alone));
  std::string text, word;
  while (words >> word) text += (text.empty() ? "" : " ") + word;
  const std::size_t begin = text.find('{') + 2;
  return text.substr(begin, text.rfind(" }") - begin);
}

// A part of a text, and what replaces it, in as many lines.
struct Replaced {
  support::Span span;
  std::string text;
};

std::string with_replaced(std::string_view text, std::vector<Replaced> parts) {
  std::ranges::sort(parts, {}, [](const Replaced& part) { return part.span.begin; });
  std::string made;
  std::size_t done = 0;
  for (const Replaced& part : parts) {
    made += text.substr(done, part.span.begin - done);
    made += part.text;
    const auto old = text.substr(part.span.begin, part.span.end - part.span.begin);
    made.append(static_cast<std::size_t>(std::ranges::count(old, '\n')), '\n');
    done = part.span.end;
  }
  return made + std::string(text.substr(done));
}

// The text of the DSL with the clause in place of those of its keyword, else behind the last one.
std::string with_clause(std::string_view text, const ast::Spec& spec, const ast::Clause& clause) {
  std::vector<Replaced> parts;
  const std::string body = body_of(clause);
  for (const ast::Clause& old : spec.clauses) {
    if (old.keyword.text == clause.keyword.text) {
      parts.push_back({old.span, parts.empty() ? body : ""});
    }
  }
  if (parts.empty()) {
    const std::uint32_t end = spec.clauses.empty()
                                  ? static_cast<std::uint32_t>(text.rfind('}', spec.span.end - 1))
                                  : spec.clauses.back().span.end;
    parts.push_back({{end, end}, " " + body});
  }
  return with_replaced(text, std::move(parts));
}

std::string with_clause(ast::Spec spec, ast::Clause clause) {
  std::erase_if(spec.clauses,
                [&](const ast::Clause& old) { return old.keyword.text == clause.keyword.text; });
  spec.clauses.push_back(std::move(clause));
  return ast::to_json(spec);
}

}  // namespace

void add_edits(CLI::App& command, Edits& edits) {
  for (const EditOption& option : kEdits) {
    const std::string keyword = option.keyword;
    if (option.type == nullptr) {
      command.add_flag_function(
          option.name, [&edits, keyword](std::int64_t) { edits[keyword] = ""; },
          option.description);
      continue;
    }
    command
        .add_option_function<std::string>(
            option.name, [&edits, keyword](const std::string& value) { edits[keyword] = value; },
            option.description)
        ->type_name(option.type);
  }
}

Result<support::Source> edited(support::Source source, const Edits& edits) {
  for (const auto& [keyword, value] : edits) {
    ATTN_ASSIGN(ast::Clause clause, clause_of(keyword, value));
    diag::Sink unheard(source);
    std::optional<ast::Spec> spec = ast::parse(source, unheard);
    if (!spec) return source;
    for (const ast::Clause& old : spec->clauses) merge(old, clause);
    std::string text = source.is_json() ? with_clause(std::move(*spec), std::move(clause))
                                        : with_clause(source.text(), *spec, clause);
    source = support::Source(source.name(), std::move(text));
  }
  return source;
}

Error refused_of_plan(const Edits& edits) {
  std::string words;
  for (const auto& [keyword, value] : edits) {
    words += (words.empty() ? "" : " ") + words_of(keyword, value);
  }
  return {ErrorCode::invalid_argument,
          fmt::format("{} cannot be used with a plan file", words),
          {"it replaces a clause of a spec: compile the plan with it"}};
}

}  // namespace attn::tools
