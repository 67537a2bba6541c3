#include "tools/support_engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "compiler/planner/search.h"
#include "compiler/support/text.h"
#include "tools/command.h"
#include "tools/table.h"

namespace attn::tools {
namespace {

using driver::Verdict;

bool is_served(const Verdict& verdict) { return verdict.outcome == Verdict::Outcome::served; }

std::string engine_of(const Verdict& verdict) { return planner::engine_name_of(verdict.lowering); }

// Texts between the numbers of a text, and the numbers.
struct Pieces {
  std::vector<std::string> texts{""};
  std::vector<std::string> numbers{};
};

Pieces pieces_of(std::string_view text) {
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  Pieces pieces;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(i)) {
      pieces.texts.back() += text[i];
      continue;
    }
    std::string number(1, text[i]);
    while (is_digit(i + 1) || (text.substr(i + 1, 1) == "." && is_digit(i + 2)))
      number += text[++i];
    pieces.numbers.push_back(std::move(number));
    pieces.texts.emplace_back();
  }
  return pieces;
}

// A reason, and the specs that it was given for. Numbers that differ from spec to spec or from GPU
// to GPU are left out.
struct Reason {
  Pieces pieces;
  std::vector<std::string> specs{};

  void add(const Pieces& other, const std::string& spec) {
    for (std::size_t i = 0; i < pieces.numbers.size(); ++i)
      if (pieces.numbers[i] != other.numbers[i]) pieces.numbers[i] = "..";
    if (specs.empty() || specs.back() != spec) specs.push_back(spec);
  }

  std::string words() const {
    std::string text = pieces.texts.front();
    for (std::size_t i = 0; i < pieces.numbers.size(); ++i)
      text += pieces.numbers[i] + pieces.texts[i + 1];
    return text;
  }
};

// Targets that agree on all specs.
struct Column {
  std::vector<std::size_t> targets;
  std::string title;

  std::size_t first() const { return targets.front(); }
};

// What cells say: names of engines, and codes of reasons in the order in which they occur.
class Cells {
 public:
  explicit Cells(const EnginesTable& table) : table_(table) {
    for (std::size_t i = 0; i < table.targets.size(); ++i) add_column(i);
    for (const SpecEngines& row : table.rows) {
      std::vector<std::string> of_targets;
      for (const BothWays& both : row.targets) of_targets.push_back(words_of(row, both));
      std::vector<std::string>& words = words_.emplace_back();
      for (const Column& column : columns_) words.push_back(of_targets[column.first()]);
    }
  }

  const std::vector<Column>& columns() const { return columns_; }
  // What the cells of a row say, by column.
  const std::vector<std::string>& words(std::size_t row) const { return words_[row]; }

  // How many specs are served, forward and backward.
  std::string served(const Column& column) const {
    const auto count = [&](Verdict BothWays::*direction) {
      return std::ranges::count_if(table_.rows, [&](const SpecEngines& row) {
        return is_served(row.targets[column.first()].*direction);
      });
    };
    return fmt::format("{} / {}", count(&BothWays::forward), count(&BothWays::backward));
  }

  // A line in this format for each reason: its code, specs and words.
  std::string reasons(const char* format) const {
    std::string text;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
      const Reason& reason = reasons_[i];
      text += fmt::format(fmt::runtime(format), fmt::format("r{}", i + 1),
                          fmt::join(reason.specs, ", "), reason.words());
    }
    return text;
  }

 private:
  // What tells columns apart: which engine, or why there is none.
  static std::vector<std::string> key(const Verdict& verdict) {
    if (is_served(verdict)) return {engine_of(verdict)};
    return pieces_of(driver::reason_of(*verdict.error)).texts;
  }

  bool agree(std::size_t left, std::size_t right) const {
    return std::ranges::all_of(table_.rows, [&](const SpecEngines& row) {
      const BothWays &a = row.targets[left], &b = row.targets[right];
      return key(a.forward) == key(b.forward) && key(a.backward) == key(b.backward);
    });
  }

  void add_column(std::size_t target) {
    const std::string& name = table_.targets[target];
    const auto found = std::ranges::find_if(
        columns_, [&](const Column& column) { return agree(column.first(), target); });
    if (found == columns_.end()) {
      columns_.push_back({{target}, name});
    } else {
      found->targets.push_back(target);
      found->title += ", " + name;
    }
  }

  std::string words_of(const SpecEngines& row, const BothWays& both) {
    const std::string forward = word(row, both.forward), backward = word(row, both.backward);
    return forward == backward ? forward : fmt::format("{} / {}", forward, backward);
  }

  std::string word(const SpecEngines& row, const Verdict& verdict) {
    if (is_served(verdict)) return engine_of(verdict);
    Pieces pieces = pieces_of(driver::reason_of(*verdict.error));
    auto found = std::ranges::find_if(
        reasons_, [&](const Reason& each) { return each.pieces.texts == pieces.texts; });
    if (found == reasons_.end()) found = reasons_.insert(reasons_.end(), {pieces});
    found->add(pieces, row.spec);
    return fmt::format("r{}", found - reasons_.begin() + 1);
  }

  const EnginesTable& table_;
  std::vector<Column> columns_;
  std::vector<Reason> reasons_;
  std::vector<std::vector<std::string>> words_;
};

Json verdict_json(const Verdict& verdict) {
  if (is_served(verdict)) {
    return {{"outcome", "served"}, {"engine", engine_of(verdict)}, {"strategy", verdict.lowering}};
  }
  const bool refused = verdict.outcome == Verdict::Outcome::refused;
  return {{"outcome", refused ? "refused" : "failed"},
          {"reason", driver::reason_of(*verdict.error)}};
}

std::string markdown_row(const std::string& title, const std::vector<std::string>& cells) {
  return fmt::format("| {} | {} |\n", title, fmt::join(cells, " | "));
}

}  // namespace

std::string EnginesTable::to_text(support::Paint paint) const {
  const Cells cells(*this);
  std::vector<Table::Column> columns = {{"spec"}};
  std::vector<Table::Cell> last = {support::count_of(rows.size(), "spec")};
  for (const Column& column : cells.columns()) {
    columns.push_back({column.title});
    last.emplace_back(cells.served(column));
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<Table::Cell> line = {rows[i].spec};
    for (const std::string& words : cells.words(i)) line.emplace_back(words);
    table.add(std::move(line));
  }
  table.add(std::move(last));
  const std::string reasons = cells.reasons("{} ({}): {}\n");
  return table.to_text("", paint) + (reasons.empty() ? "" : "\n" + reasons);
}

std::string EnginesTable::to_markdown() const {
  const Cells cells(*this);
  std::vector<std::string> titles, last;
  std::string line = "|---|";
  for (const Column& column : cells.columns()) {
    titles.push_back(column.title);
    line += "---|";
    last.push_back(cells.served(column));
  }
  std::string text = markdown_row("spec", titles) + line + '\n';
  for (std::size_t i = 0; i < rows.size(); ++i) text += markdown_row(rows[i].spec, cells.words(i));
  text += markdown_row(support::count_of(rows.size(), "spec"), last);
  const std::string reasons = cells.reasons("- **{}** ({}): {}\n");
  return text + (reasons.empty() ? "" : "\n" + reasons);
}

Json EnginesTable::to_json() const {
  Json specs = Json::array();
  for (const SpecEngines& row : rows) {
    Json cells = Json::array();
    for (std::size_t i = 0; i < targets.size(); ++i) {
      cells.push_back({{"target", targets[i]},
                       {"forward", verdict_json(row.targets[i].forward)},
                       {"backward", verdict_json(row.targets[i].backward)}});
    }
    specs.push_back({{"spec", row.spec}, {"file", row.file}, {"targets", std::move(cells)}});
  }
  return {{"specs", std::move(specs)}};
}

int EnginesTable::exit_code() const {
  int code = kOk;
  for (const SpecEngines& row : rows) {
    for (const BothWays& both : row.targets) {
      for (const Verdict* verdict : {&both.forward, &both.backward}) {
        if (!is_served(*verdict)) code = std::max(code, attn::exit_code(verdict->error->code));
      }
    }
  }
  return code;
}

}  // namespace attn::tools
