// Diagnostics of a spec: collects and sorts them, and renders them as text with carets, as JSON or
// as SARIF. Codes are declared in diagnostics.def.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/paint.h"
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

// A secondary span with its own message.
struct Label {
  support::Span span;
  std::string message;
};

// Replaces the text of a span, which may be empty.
struct Edit {
  support::Span span;
  std::string text;
};

// A change of the source that does what the help says.
struct Fix {
  std::string title;  // "write `window`"
  std::vector<Edit> edits;
};

struct Diagnostic {
  Code code;
  support::Span span;
  std::string message;
  std::vector<Label> labels;
  std::string help;          // how to fix it; empty if unknown
  std::vector<Fix> fixes{};  // alternatives; for programs, so not part of the text

  // Adds the fix that replaces `at` by `text`; none if `text` is empty.
  void add_replacement(support::Span at, std::string_view text);
};

// A span in one of several sources.
struct Location {
  const support::Source* source;
  support::Span span;  // in the text of `source`
};

// Collects diagnostics of one source and its imports. Not thread-safe; use one per compilation.
// Spans number the bytes of all sources: the first source begins at 0, an added one at the offset
// that `add` returns.
class Sink {
 public:
  // Number of diagnostics after which further ones are dropped, once there is an error.
  static constexpr std::size_t kMost = 200;

  // `source` must outlive the sink.
  explicit Sink(const support::Source& source) : source_(&source) {}

  // An added source, owned by the sink, and the offset of its spans.
  struct Added {
    const support::Source& source;
    std::uint32_t offset;
  };
  Added add(support::Source source);
  // Copies the diagnostics of `alone`, the sink of a single added source, with spans moved by
  // `offset`.
  void adopt(const Sink& alone, std::uint32_t offset);
  Location locate(support::Span span) const;
  std::size_t size() const;  // bytes of the sources

  // During its lifetime, every report gets this label, such as the call of a function.
  class Context {
   public:
    Context(Sink& sink, Label label) : sink_(sink) { sink_.context_.push_back(std::move(label)); }
    ~Context() { sink_.context_.pop_back(); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

   private:
    Sink& sink_;
  };

  // Returns the diagnostic, for labels and help to be added. It stays valid when more are reported.
  Diagnostic& report(Code code, support::Span span, std::string message);
  // Cost of the analyses that report here, in expressions visited.
  void add_work(std::uint64_t work) { work_ += work; }
  std::uint64_t work() const { return work_; }

  // Records that a check was stopped at its work limit: there may be more to report.
  void set_stopped() { is_stopped_ = true; }
  bool is_stopped() const { return is_stopped_; }

  // Begins the analysis for these sizes ("Sq=1024"). Messages that do not hold for all sizes begun
  // name the sizes they hold for.
  void begin_sizes(std::string sizes) { sizes_.push_back(std::move(sizes)); }

  bool has_errors() const;
  std::size_t error_count() const;

  // Sorted by span, then by code, without duplicates. What is found for several sizes is reported
  // once, with the message of the first.
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
  std::deque<std::size_t> sizes_of_;  // per diagnostic: how many sizes had begun
  std::uint64_t work_ = 0;
  bool is_stopped_ = false;
  Diagnostic dropped_{};  // target of reports beyond the limit
};

// Text in the format of rustc:
//   error[E0203]: unknown name `windw`
//     --> specs/x.attn:4:29
//      |
//    4 |   mask  q_idx - kv_idx < windw;
//      |                          ^^^^^
//      = help: did you mean `window`?
// A label in another file is printed below, under `::: file:line:column`.
std::string to_text(const Sink& sink, support::Paint paint = {});

// {"diagnostics": [{"code", "severity", "message", "file", "line", "column", "end_line",
//  "end_column", "labels": [{"message", "file", "line", ..}], "help", "fixes": [{"title", "edits":
//  [{"text", "file", "line", ..}]}]}], "errors": n}
std::string to_json(const Sink& sink);

// A SARIF 2.1.0 log of a run over several sources, for code hosts and editors. `failures` are
// messages about files that could not be read; `version` is the version of attnc.
std::string to_sarif(const std::vector<const Sink*>& sinks,
                     const std::vector<std::string>& failures, std::string_view version);

}  // namespace attn::diag
