#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/diag/diagnostics.h"
#include "compiler/support/text.h"

namespace attn::diag {
namespace {

constexpr std::size_t kTab = 4;
constexpr std::size_t kWidth = 160;  // of a source line; a longer one is shown around the caret

// One underline: cells of the shown line.
struct Mark {
  std::size_t begin;
  std::size_t end;
  char sign;
  std::string message;
};

// A source line as terminal cells: tabs expanded, what cannot be shown replaced.
struct ShownLine {
  std::vector<std::string> cells;
  std::vector<std::size_t> cell_of_column;  // one more than there are columns
};

ShownLine show(std::string_view line) {
  ShownLine shown;
  while (!line.empty()) {
    const std::string_view point = line.substr(0, support::code_point_bytes(line));
    shown.cell_of_column.push_back(shown.cells.size());
    if (point == "\t") {
      shown.cells.insert(shown.cells.end(), kTab, " ");
    } else {
      shown.cells.emplace_back(support::is_printable(point) ? point : "\xEF\xBF\xBD");
    }
    line.remove_prefix(point.size());
  }
  shown.cell_of_column.push_back(shown.cells.size());
  return shown;
}

std::size_t cell(const ShownLine& line, std::uint32_t column) {
  return line.cell_of_column[std::min<std::size_t>(column, line.cell_of_column.size()) - 1];
}

class Renderer {
 public:
  Renderer(const support::Source& source, const Diagnostic& diagnostic)
      : source_(source), diagnostic_(diagnostic) {
    add(diagnostic.span, '^', "");
    for (const Label& label : diagnostic.labels) add(label.span, '-', label.message);
    gutter_ = fmt::format("{}", lines_.rbegin()->first).size() + 1;
  }

  std::string run() {
    const support::Place at = source_.place(diagnostic_.span.begin);
    out_ += fmt::format("{}[{}]: {}\n", to_string(severity_of(diagnostic_.code)),
                        id_of(diagnostic_.code), diagnostic_.message);
    out_ += fmt::format("{:{}}--> {}:{}:{}\n", "", gutter_, support::printable(source_.name()),
                        at.line, at.column);
    out_ += fmt::format("{:{}} |\n", "", gutter_);
    for (auto it = lines_.begin(); it != lines_.end(); ++it) {
      if (it != lines_.begin() && std::prev(it)->first + 1 != it->first) out_ += "...\n";
      put_line(it->first, it->second);
    }
    if (!diagnostic_.help.empty()) {
      out_ += fmt::format("{:{}} = help: {}\n", "", gutter_, diagnostic_.help);
    }
    return std::move(out_);
  }

 private:
  void add(support::Span span, char sign, std::string message) {
    const support::Place begin = source_.place(span.begin);
    const support::Place end = source_.place(std::max(span.begin, span.end));
    const ShownLine line = show(source_.line(begin.line));
    const std::size_t first = cell(line, begin.column);
    const std::size_t last = end.line == begin.line ? cell(line, end.column) : line.cells.size();
    lines_[begin.line].push_back({first, std::max(first + 1, last), sign, std::move(message)});
  }

  void put_line(std::uint32_t number, const std::vector<Mark>& marks) {
    const ShownLine line = show(source_.line(number));
    const std::size_t from =
        marks[0].begin > kWidth / 2 && line.cells.size() > kWidth ? marks[0].begin - kWidth / 2 : 0;
    const std::size_t to = std::min(line.cells.size(), from + kWidth);
    std::string text;
    for (std::size_t i = from; i < to; ++i) text += line.cells[i];
    while (text.ends_with(' ')) text.pop_back();
    out_ += fmt::format("{:>{}} |{}{}\n", number, gutter_, text.empty() ? "" : " ", text);
    for (const Mark& mark : marks) put_mark(mark, from, to);
  }

  void put_mark(const Mark& mark, std::size_t from, std::size_t to) {
    if (mark.begin < from || mark.begin > to) return;  // beyond the shown part of a long line
    const std::size_t count = std::max<std::size_t>(std::min(mark.end, to), mark.begin + 1);
    out_ += fmt::format("{:{}} | {:{}}{}{}{}\n", "", gutter_, "", mark.begin - from,
                        std::string(count - mark.begin, mark.sign), mark.message.empty() ? "" : " ",
                        mark.message);
  }

  const support::Source& source_;
  const Diagnostic& diagnostic_;
  std::map<std::uint32_t, std::vector<Mark>> lines_;
  std::size_t gutter_ = 0;
  std::string out_;
};

}  // namespace

std::string to_text(const Sink& sink) {
  std::string out;
  for (const Diagnostic& diagnostic : sink.sorted()) {
    if (!out.empty()) out += "\n";
    out += Renderer(sink.source(), diagnostic).run();
  }
  return out;
}

}  // namespace attn::diag
