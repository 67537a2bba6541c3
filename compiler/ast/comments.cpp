#include "compiler/ast/comments.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/support/text.h"

namespace attn::ast {
namespace {

// Appends the text between the quotes, one comment per line.
void put_docstring(std::string_view text, CommentLines& lines) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t quotes = text.starts_with("\"\"\"") || text.starts_with("'''") ? 3 : 1;
  text = text.substr(quotes, text.size() - 2 * quotes);
  const auto trimmed = [&](std::string_view part) {
    const std::size_t first = std::min(part.find_first_not_of(kSpace), part.size());
    return part.substr(first, part.find_last_not_of(kSpace) + 1 - first);
  };
  text = trimmed(text);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    lines.push_back(line.empty() ? "#" : fmt::format("# {}", line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

class Placer {
 public:
  Placer(const support::Source& source, const std::vector<Span>& comments)
      : source_(source), comments_(comments) {}

  // Takes the comments before and inside the node.
  void above(Span node, CommentLines& lines) {
    before(node.begin, lines);
    put_blank_line(node.begin, lines);
    while (next_begins_before(node.end)) take(lines);
    last_end_ = node.end;
  }

  // Takes the comment on the last line of the previous node, unless another node begins before it.
  void beside(std::uint32_t next_node, std::string& comment) {
    if (!next_begins_before(next_node) || !next_text().starts_with('#')) return;
    if (line(comments_[next_].begin) == line(last_end_)) comment = take();
  }

  void before(std::uint32_t end, CommentLines& lines) {
    while (next_begins_before(end)) {
      put_blank_line(comments_[next_].begin, lines);
      take(lines);
    }
  }

 private:
  bool next_begins_before(std::uint32_t end) const {
    return next_ < comments_.size() && comments_[next_].begin < end;
  }

  std::uint32_t line(std::uint32_t offset) const { return source_.place(offset).line; }

  void put_blank_line(std::uint32_t begin, CommentLines& lines) const {
    if (line(begin) > line(last_end_) + 1) lines.emplace_back();
  }

  std::string_view next_text() const {
    const Span span = comments_[next_];
    return source_.text().substr(span.begin, span.end - span.begin);
  }

  std::string take() {
    std::string text(next_text());
    last_end_ = comments_[next_++].end;
    return text;
  }

  void take(CommentLines& lines) {
    const std::string comment = take();
    if (comment.starts_with('#')) {
      lines.push_back(comment);
    } else {
      put_docstring(comment, lines);
    }
  }

  const support::Source& source_;
  const std::vector<Span>& comments_;
  std::size_t next_ = 0;
  std::uint32_t last_end_ = 0;
};

void trim(std::string& comment) { comment.erase(comment.find_last_not_of(" \t") + 1); }

void normalize(CommentLines& lines, bool at_top, bool at_end) {
  std::ranges::for_each(lines, trim);
  const auto both_blank = [](const std::string& a, const std::string& b) {
    return a.empty() && b.empty();
  };
  const auto repeats = std::ranges::unique(lines, both_blank);
  lines.erase(repeats.begin(), repeats.end());
  if (at_top && !lines.empty() && lines.front().empty()) lines.erase(lines.begin());
  if (at_end && !lines.empty() && lines.back().empty()) lines.pop_back();
}

}  // namespace

bool is_comment(std::string_view text) {
  return text.starts_with('#') && text.find_first_of("\r\n") == text.npos;
}

std::optional<Span> first_not_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = support::code_point_bytes(text.substr(at));
    const auto begin = static_cast<std::uint32_t>(at);
    if (bytes == 1 && static_cast<unsigned char>(text[at]) >= 0x80) return Span{begin, begin + 1};
    at += bytes;
  }
  return std::nullopt;
}

void attach_comments(const support::Source& source, const std::vector<Span>& comments,
                     std::uint32_t end_of_header, Spec& spec) {
  Placer placer(source, comments);
  const auto place = [&](std::vector<Clause>& clauses, std::uint32_t end) {
    for (std::size_t i = 0; i < clauses.size(); ++i) {
      placer.above(clauses[i].span, clauses[i].comments.above);
      const bool last = i + 1 == clauses.size();
      placer.beside(last ? end : clauses[i + 1].span.begin, clauses[i].comments.beside);
    }
  };
  if (spec.is_library) {
    const auto size = static_cast<std::uint32_t>(source.text().size());
    place(spec.preamble, size);
    placer.before(size, spec.below);
    return normalize_comments(spec);
  }
  const std::uint32_t brace = spec.span.end - 1;
  place(spec.preamble, spec.span.begin);
  placer.above({spec.span.begin, end_of_header}, spec.comments.above);
  placer.beside(spec.clauses.empty() ? brace : spec.clauses[0].span.begin, spec.comments.beside);
  place(spec.clauses, brace);
  placer.before(brace, spec.end);
  CommentLines at_brace;
  placer.above({brace, spec.span.end}, at_brace);
  placer.before(static_cast<std::uint32_t>(source.text().size()), spec.below);
  normalize_comments(spec);
}

void normalize_comments(Spec& spec) {
  bool top = true;
  const auto clauses = [&](std::vector<Clause>& all) {
    for (Clause& clause : all) {
      normalize(clause.comments.above, top, false);
      trim(clause.comments.beside);
      top = false;
    }
  };
  clauses(spec.preamble);
  normalize(spec.comments.above, top, false);
  trim(spec.comments.beside);
  top = true;
  clauses(spec.clauses);
  normalize(spec.end, top, true);
  normalize(spec.below, spec.is_library && spec.preamble.empty(), true);
}

}  // namespace attn::ast
