#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/diag/diagnostics.h"
#include "compiler/support/text.h"

namespace attn::diag {
namespace {

using support::Style;

constexpr std::size_t kTab = 4;
constexpr std::size_t kWidth =
    160;  // bytes of a source line; longer lines are cut around the caret

Style style_of(Code code) {
  switch (severity_of(code)) {
    case Severity::error: return Style::error;
    case Severity::warning: return Style::warning;
    case Severity::note: break;
  }
  return Style::help;
}

// One underline; offsets are bytes in its line.
struct Mark {
  std::size_t begin;
  std::size_t end;
  char sign;
  std::string message;
};

// Part of a source line as terminal cells: tabs expanded, unprintable characters replaced.
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
  // The cell that shows a byte of the line; one past the last cell for bytes after it.
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
  Renderer(const Sink& sink, const Diagnostic& diagnostic, support::Paint paint)
      : sink_(sink), diagnostic_(diagnostic), paint_(paint), style_(style_of(diagnostic.code)) {
    add(diagnostic.span, '^', "");
    for (const Label& label : diagnostic.labels) add(label.span, '-', label.message);
    for (const File& file : files_) {
      gutter_ = std::max(gutter_, fmt::format("{}", file.lines.rbegin()->first).size() + 1);
    }
  }

  std::string run() {
    const std::string title =
        fmt::format("{}[{}]", to_string(severity_of(diagnostic_.code)), id_of(diagnostic_.code));
    out_ += fmt::format("{}{}\n", paint_(style_, title),
                        paint_(Style::heading, ": " + diagnostic_.message));
    for (const File& file : files_) put_file(file);
    if (!diagnostic_.help.empty()) {
      out_ += fmt::format("{:{}} {} {}: {}\n", "", gutter_, paint_(Style::frame, "="),
                          paint_(Style::help, "help"), diagnostic_.help);
    }
    return std::move(out_);
  }

 private:
  // The lines shown of one file; the file of the diagnostic comes first.
  struct File {
    const support::Source* source;
    std::uint32_t first;  // the offset in its heading
    std::map<std::uint32_t, std::vector<Mark>> lines;
  };

  void add(support::Span span, char sign, std::string message) {
    const auto [source, local] = sink_.locate(span);
    File& file = file_of(source, local.begin);
    const std::uint32_t number = source->place(local.begin).line;
    const std::string_view line = source->line(number);
    const auto start = static_cast<std::size_t>(line.data() - source->text().data());
    const std::size_t end =
        std::min<std::size_t>(std::max(local.begin, local.end), start + line.size());
    file.lines[number].push_back({local.begin - start, end - start, sign, std::move(message)});
  }

  File& file_of(const support::Source* source, std::uint32_t first) {
    const auto found = std::ranges::find(files_, source, &File::source);
    return found != files_.end() ? *found : files_.emplace_back(File{source, first, {}});
  }

  void put_file(const File& file) {
    const support::Place at = file.source->place(file.first);
    const bool own = &file == &files_.front();
    out_ +=
        fmt::format("{:{}}{} {}:{}:{}\n", "", gutter_, paint_(Style::frame, own ? "-->" : ":::"),
                    support::printable(file.source->name()), at.line, at.column);
    if (!support::is_text(file.source->line(at.line))) return;
    out_ += paint_(Style::frame, fmt::format("{:{}} |", "", gutter_)) + "\n";
    for (auto it = file.lines.begin(); it != file.lines.end(); ++it) {
      if (it != file.lines.begin() && std::prev(it)->first + 1 != it->first) out_ += "...\n";
      put_line(*file.source, it->first, it->second);
    }
  }

  void put_line(const support::Source& source, std::uint32_t number,
                const std::vector<Mark>& marks) {
    const ShownLine line(source.line(number), marks[0].begin);
    out_ += fmt::format("{}{}{}\n", paint_(Style::frame, fmt::format("{:>{}} |", number, gutter_)),
                        line.text().empty() ? "" : " ", line.text());
    for (const Mark& mark : marks) {
      if (line.shows(mark.begin)) put_mark(mark, line);
    }
  }

  void put_mark(const Mark& mark, const ShownLine& line) {
    const std::size_t begin = line.cell(mark.begin);
    const std::size_t count = std::max(line.cell(mark.end), begin + 1) - begin;
    const Style style = mark.sign == '^' ? style_ : Style::help;
    out_ += fmt::format("{} {:{}}{}\n", paint_(Style::frame, fmt::format("{:{}} |", "", gutter_)),
                        "", begin,
                        paint_(style, fmt::format("{}{}{}", std::string(count, mark.sign),
                                                  mark.message.empty() ? "" : " ", mark.message)));
  }

  const Sink& sink_;
  const Diagnostic& diagnostic_;
  support::Paint paint_;
  Style style_;
  std::vector<File> files_;
  std::size_t gutter_ = 0;
  std::string out_;
};

}  // namespace

std::string to_text(const Sink& sink, support::Paint paint) {
  std::string out;
  for (const Diagnostic& diagnostic : sink.sorted()) {
    if (!out.empty()) out += "\n";
    out += Renderer(sink, diagnostic, paint).run();
  }
  return out;
}

}  // namespace attn::diag
