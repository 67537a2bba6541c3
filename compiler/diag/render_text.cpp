#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/diag/diagnostics.h"
#include "compiler/support/text.h"

namespace attn::diag {
namespace {

constexpr std::size_t kTab = 4;
constexpr std::size_t kWidth = 160;  // bytes of a source line; a longer one is cut around the caret

// One underline: bytes of its line.
struct Mark {
  std::size_t begin;
  std::size_t end;
  char sign;
  std::string message;
};

// Part of a source line as terminal cells: tabs expanded, what cannot be shown replaced.
class ShownLine {
 public:
  ShownLine(std::string_view line, std::size_t around) {
    if (line.size() > kWidth && around > kWidth / 2) first_ = around - kWidth / 2;
    while (first_ > 0 && is_continuation(line, first_)) --first_;
    for (std::size_t at = first_; at < line.size() && at - first_ < kWidth;) {
      const std::string_view rest = line.substr(at);
      const std::string_view point = rest.substr(0, support::code_point_bytes(rest));
      const std::string shown = point == "\t"                  ? std::string(kTab, ' ')
                                : support::is_printable(point) ? std::string(point)
                                                               : "\xEF\xBF\xBD";
      for (std::size_t i = 0; i < point.size(); ++i) cell_of_byte_.push_back(cells_);
      cells_ += point == "\t" ? kTab : 1;
      text_ += shown;
      at += point.size();
    }
  }

  std::string_view text() const {
    const std::size_t last = text_.find_last_not_of(' ');
    return std::string_view(text_).substr(0, last == text_.npos ? 0 : last + 1);
  }
  // The cell a byte of the line is shown in; one past the last for what lies behind.
  std::size_t cell(std::size_t byte) const {
    if (byte < first_) return 0;
    return byte - first_ < cell_of_byte_.size() ? cell_of_byte_[byte - first_] : cells_;
  }
  bool shows(std::size_t byte) const {
    return byte >= first_ && byte - first_ <= cell_of_byte_.size();
  }

 private:
  static bool is_continuation(std::string_view line, std::size_t at) {
    return (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80;
  }

  std::size_t first_ = 0;
  std::string text_;
  std::size_t cells_ = 0;
  std::vector<std::size_t> cell_of_byte_;
};

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
    const std::uint32_t number = source_.place(span.begin).line;
    const std::string_view line = source_.line(number);
    const auto start = static_cast<std::size_t>(line.data() - source_.text().data());
    const std::size_t end =
        std::min<std::size_t>(std::max(span.begin, span.end), start + line.size());
    lines_[number].push_back({span.begin - start, end - start, sign, std::move(message)});
  }

  void put_line(std::uint32_t number, const std::vector<Mark>& marks) {
    const ShownLine line(source_.line(number), marks[0].begin);
    out_ +=
        fmt::format("{:>{}} |{}{}\n", number, gutter_, line.text().empty() ? "" : " ", line.text());
    for (const Mark& mark : marks) {
      if (line.shows(mark.begin)) put_mark(mark, line);
    }
  }

  void put_mark(const Mark& mark, const ShownLine& line) {
    const std::size_t begin = line.cell(mark.begin);
    const std::size_t count = std::max(line.cell(mark.end), begin + 1) - begin;
    out_ +=
        fmt::format("{:{}} | {:{}}{}{}{}\n", "", gutter_, "", begin, std::string(count, mark.sign),
                    mark.message.empty() ? "" : " ", mark.message);
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
