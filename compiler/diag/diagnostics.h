// What is wrong with a spec: code, place, words, help. Collected, sorted by place, rendered as text
// with carets, as JSON, or as SARIF. Codes are declared once, in diagnostics.def.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/source.h"

namespace attn::diag {

enum class Severity : std::uint8_t { error, warning, note };

enum class Code : std::uint16_t {
#define ATTN_DIAGNOSTIC(id, name, severity, summary) name,
#include "compiler/diag/diagnostics.def"
#undef ATTN_DIAGNOSTIC
};

std::string_view id_of(Code code);  // "E0203"
Severity severity_of(Code code);
std::string_view summary_of(Code code);  // one line, for lists and explain-code
std::span<const Code> all_codes();       // in the order of diagnostics.def
std::string_view to_string(Severity severity);

// A further place that explains the first, with its own words.
struct Label {
  support::Span span;
  std::string message;
};

struct Diagnostic {
  Code code;
  support::Span span;
  std::string message;
  std::vector<Label> labels;
  std::string help;  // what would work; empty if there is nothing certain to say
};

// A place within one of several sources.
struct Location {
  const support::Source* source;
  support::Span span;  // of its text
};

// Collects diagnostics about one source and those it imports. Not thread-safe; one for each
// compilation. Spans count through all the sources: the first begins at 0, each further one where
// `add` says.
class Sink {
 public:
  // More than this many are of no use to anybody, and their number must not grow with the input.
  static constexpr std::size_t kMost = 200;

  // The sink refers to `source`, which must outlive it.
  explicit Sink(const support::Source& source) : source_(&source) {}

  // A further source, kept by the sink, and the offset its spans begin at.
  struct Added {
    const support::Source& source;
    std::uint32_t offset;
  };
  Added add(support::Source source);
  // Takes over what was found in a source that was added, when it was looked at alone.
  void adopt(const Sink& alone, std::uint32_t offset);
  Location locate(support::Span span) const;
  std::size_t size() const;  // bytes of the sources

  // While it lives, every report gets this label behind its own place: where a function was called.
  class Context {
   public:
    Context(Sink& sink, Label label) : sink_(sink) { sink_.context_.push_back(std::move(label)); }
    ~Context() { sink_.context_.pop_back(); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

   private:
    Sink& sink_;
  };

  // Add labels and help to what it returns, which stays valid when more is reported.
  Diagnostic& report(Code code, support::Span span, std::string message);
  // What analyses that report here have cost, in expressions looked at.
  void add_work(std::uint64_t work) { work_ += work; }
  std::uint64_t work() const { return work_; }

  // That a check would have taken too much work: there may be more to report.
  void set_stopped() { is_stopped_ = true; }
  bool is_stopped() const { return is_stopped_; }

  // From here on the spec is analysed with these sizes ("Sq=1024"), of which the messages speak
  // that do not hold for all that were begun.
  void begin_sizes(std::string sizes) { sizes_.push_back(std::move(sizes)); }

  bool has_errors() const;
  std::size_t error_count() const;

  // By place, then by code; exact repeats dropped. What is found with several sizes is said once,
  // in the words of the first.
  std::vector<Diagnostic> sorted() const;
  const support::Source& source() const { return *source_; }

 private:
  struct Further {
    std::unique_ptr<const support::Source> source;
    std::uint32_t offset;
  };

  const support::Source* source_;
  std::vector<Further> further_;  // by offset
  std::vector<Label> context_;
  std::deque<Diagnostic> diagnostics_;  // references to them are handed out
  std::vector<std::string> sizes_;
  std::deque<std::size_t> sizes_of_;  // of each diagnostic: how many had begun
  std::uint64_t work_ = 0;
  bool is_stopped_ = false;
  Diagnostic dropped_{};  // what a report beyond the limit writes to
};

// rustc's shape:
//   error[E0203]: unknown name `windw`
//     --> specs/x.attn:4:29
//      |
//    4 |   mask  q_idx - kv_idx < windw;
//      |                          ^^^^^
//      = help: did you mean `window`?
// A label in another file stands below, under `::: file:line:column`.
std::string to_text(const Sink& sink);

// {"diagnostics": [{"code", "severity", "message", "file", "line", "column", "end_line",
//  "end_column", "labels": [{"message", "file", "line", ..}], "help"}], "errors": n}
std::string to_json(const Sink& sink);

// One SARIF 2.1.0 log of a run over several sources, for code hosts and editors. `failures` are
// files that could not be read, in words; `version` is the tool's.
std::string to_sarif(const std::vector<const Sink*>& sinks,
                     const std::vector<std::string>& failures, std::string_view version);

}  // namespace attn::diag
