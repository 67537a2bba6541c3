#include "tools/page/spec_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/ast/lexemes.h"
#include "compiler/support/text.h"
#include "tools/words.h"

namespace attn::tools::page {
namespace {

constexpr std::string_view kTab = "    ";

std::string_view word_of(ast::LexemeKind kind) {
  switch (kind) {
    case ast::LexemeKind::keyword: return "keyword";
    case ast::LexemeKind::name: return "";
    case ast::LexemeKind::function: return "function";
    case ast::LexemeKind::number: return "literal";
    case ast::LexemeKind::string: return "string";
    case ast::LexemeKind::comment: return "comment";
    case ast::LexemeKind::sign: return "sign";
  }
  return "";
}

// Tabs are spaces, and what cannot be printed is escaped; so carets can be counted.
std::string cells_of(std::string_view text) {
  std::string out;
  for (; !text.empty();) {
    const std::string_view point = text.substr(0, support::code_point_bytes(text));
    text.remove_prefix(point.size());
    if (point == "\t")
      out += kTab;
    else if (point != "\r")
      out += shown(point);
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

class Lines {
 public:
  explicit Lines(const support::Source& source) : source_(source) {
    const std::string_view text = source.text();
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      starts_.push_back(at);
      ends_.push_back(end);
      at = end + 1;
    }
    if (starts_.size() > 1 && starts_.back() == text.size()) {  // after the last line end
      starts_.pop_back();
      ends_.pop_back();
    }
    words_.resize(starts_.size(), Json::array());
    marks_.resize(starts_.size(), Json::array());
  }

  void colour() {
    std::vector<std::size_t> done = starts_;
    for (const ast::Lexeme& lexeme : ast::lexemes(source_)) {
      const std::size_t begin = lexeme.span.begin, end = lexeme.span.end;
      for (std::size_t line = line_of(begin); line < starts_.size() && starts_[line] < end;
           ++line) {
        put(line, done[line], std::max(begin, starts_[line]), "");
        put(line, std::max(begin, starts_[line]), std::min(end, ends_[line]), word_of(lexeme.kind));
        done[line] = std::max(done[line], std::min(end, ends_[line]));
      }
    }
    for (std::size_t line = 0; line < starts_.size(); ++line)
      put(line, done[line], ends_[line], "");
  }

  void mark(support::Span span, char sign, const std::string& message, const char* severity) {
    const std::size_t line = std::min(line_of(span.begin), starts_.size() - 1);
    const std::string_view text = source_.text();
    const std::size_t end = std::clamp<std::size_t>(span.end, span.begin, ends_[line]);
    const std::size_t before =
        width_of(cells_of(text.substr(starts_[line], span.begin - starts_[line])));
    const std::size_t under = width_of(cells_of(text.substr(span.begin, end - span.begin)));
    add(line, severity,
        fmt::format("{}{} {}", std::string(before, ' '),
                    std::string(std::max<std::size_t>(under, 1), sign), message));
  }

  void add(std::size_t line, const char* severity, std::string text) {
    marks_[line].push_back({{"severity", severity}, {"text", std::move(text)}});
  }

  std::size_t line_of(std::size_t offset) const {
    const auto after = std::ranges::upper_bound(starts_, offset);
    return static_cast<std::size_t>(after - starts_.begin()) - 1;
  }

  Json view(const std::vector<ExplainedClause>& clauses) {
    Json lines = Json::array();
    for (std::size_t i = 0; i < starts_.size(); ++i) {
      std::string of;
      for (std::size_t clause = 0; clause < clauses.size(); ++clause) {
        const bool inside = clauses[clause].line <= i + 1 && i + 1 <= clauses[clause].last_line;
        if (inside) of += fmt::format("{}{}", of.empty() ? "" : " ", clause);
      }
      lines.push_back({{"number", i + 1},
                       {"words", std::move(words_[i])},
                       {"clauses", of},
                       {"marks", std::move(marks_[i])}});
    }
    return lines;
  }

 private:
  void put(std::size_t line, std::size_t begin, std::size_t end, std::string_view kind) {
    if (end <= begin) return;
    const std::string text = cells_of(source_.text().substr(begin, end - begin));
    words_[line].push_back({{"kind", kind}, {"text", text}});
  }

  const support::Source& source_;
  std::vector<std::size_t> starts_, ends_;  // offsets of each line
  std::vector<Json> words_, marks_;
};

const char* severity_of(const diag::Diagnostic& diagnostic) {
  switch (diag::severity_of(diagnostic.code)) {
    case diag::Severity::error: return "error";
    case diag::Severity::warning: return "warning";
    case diag::Severity::note: break;
  }
  return "note";
}

std::string heading_of(const diag::Diagnostic& diagnostic) {
  return fmt::format("{}[{}]: {}", severity_of(diagnostic), diag::id_of(diagnostic.code),
                     diagnostic.message);
}

void mark(Lines& lines, const diag::Sink& sink, const diag::Diagnostic& diagnostic) {
  const char* severity = severity_of(diagnostic);
  const auto [source, span] = sink.locate(diagnostic.span);
  if (source != &sink.source()) return;
  lines.mark(span, '^', heading_of(diagnostic), severity);
  for (const diag::Label& label : diagnostic.labels) {
    const auto [file, place] = sink.locate(label.span);
    if (file == source) lines.mark(place, '-', label.message, severity);
  }
  if (diagnostic.help.empty()) return;
  lines.add(lines.line_of(span.begin), severity, "= help: " + diagnostic.help);
}

}  // namespace

Json lines_view(const support::Source& source, const std::vector<const diag::Sink*>& warnings,
                const std::vector<ExplainedClause>& clauses) {
  Lines lines(source);
  lines.colour();
  for (const diag::Sink* sink : warnings) {
    for (const diag::Diagnostic& diagnostic : sink->sorted()) mark(lines, *sink, diagnostic);
  }
  return lines.view(clauses);
}

Json other_marks_view(const std::vector<const diag::Sink*>& warnings) {
  Json marks = Json::array();
  for (const diag::Sink* sink : warnings) {
    for (const diag::Diagnostic& diagnostic : sink->sorted()) {
      const auto [source, span] = sink->locate(diagnostic.span);
      if (source == &sink->source()) continue;
      const support::Place place = source->place(span.begin);
      marks.push_back({{"severity", severity_of(diagnostic)},
                       {"text", fmt::format("{}:{}:{}: {}", source->name(), place.line,
                                            place.column, heading_of(diagnostic))}});
    }
  }
  return marks;
}

}  // namespace attn::tools::page
