#include "compiler/diag/diagnostics.h"

#include <algorithm>
#include <tuple>

namespace attn::diag {
namespace {

struct Info {
  std::string_view id;
  Severity severity;
  std::string_view summary;
};

const Info& info(Code code) {
  static constexpr Info kInfos[] = {
#define ATTN_DIAGNOSTIC(id, name, severity, summary) {#id, Severity::severity, summary},
#include "compiler/diag/diagnostics.def"
#undef ATTN_DIAGNOSTIC
  };
  return kInfos[static_cast<std::size_t>(code)];
}

auto order(const Diagnostic& d) { return std::tuple(d.span.begin, d.span.end, d.code); }

}  // namespace

std::string_view id_of(Code code) { return info(code).id; }
Severity severity_of(Code code) { return info(code).severity; }
std::string_view summary_of(Code code) { return info(code).summary; }

std::span<const Code> all_codes() {
  static constexpr Code kCodes[] = {
#define ATTN_DIAGNOSTIC(id, name, severity, summary) Code::name,
#include "compiler/diag/diagnostics.def"
#undef ATTN_DIAGNOSTIC
  };
  return kCodes;
}

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::error: return "error";
    case Severity::warning: return "warning";
    case Severity::note: return "note";
  }
  return "";
}

Diagnostic& Sink::report(Code code, support::Span span, std::string message) {
  Diagnostic diagnostic{code, span, std::move(message), context_, {}};
  if (diagnostics_.size() >= kMost && has_errors()) return dropped_ = std::move(diagnostic);
  return diagnostics_.emplace_back(std::move(diagnostic));
}

Sink::Added Sink::add(support::Source source) {
  const std::uint32_t last = further_.empty() ? 0 : further_.back().offset;
  const support::Source& before = further_.empty() ? *source_ : *further_.back().source;
  // One between them, so that the end of one is not the beginning of the next.
  const std::uint32_t offset = last + static_cast<std::uint32_t>(before.text().size()) + 1;
  further_.push_back({std::make_unique<const support::Source>(std::move(source)), offset});
  return {*further_.back().source, offset};
}

std::size_t Sink::size() const {
  if (further_.empty()) return source_->text().size();
  return further_.back().offset + further_.back().source->text().size();
}

void Sink::adopt(const Sink& alone, std::uint32_t offset) {
  const auto moved = [&](support::Span span) {
    return support::Span{span.begin + offset, span.end + offset};
  };
  for (const Diagnostic& found : alone.sorted()) {
    Diagnostic& diagnostic = report(found.code, moved(found.span), found.message);
    for (const Label& label : found.labels) {
      diagnostic.labels.push_back({moved(label.span), label.message});
    }
    diagnostic.help = found.help;
  }
}

Location Sink::locate(support::Span span) const {
  Location location{source_, span};
  for (const Further& one : further_) {
    if (span.begin < one.offset) break;
    location = {one.source.get(), {span.begin - one.offset, span.end - one.offset}};
  }
  return location;
}

bool Sink::has_errors() const {
  return std::ranges::any_of(
      diagnostics_, [](const Diagnostic& d) { return severity_of(d.code) == Severity::error; });
}

std::size_t Sink::error_count() const {
  const auto found = sorted();
  return static_cast<std::size_t>(std::ranges::count_if(
      found, [](const Diagnostic& d) { return severity_of(d.code) == Severity::error; }));
}

std::vector<Diagnostic> Sink::sorted() const {
  std::vector<Diagnostic> result(diagnostics_.begin(), diagnostics_.end());
  std::ranges::stable_sort(
      result, [](const Diagnostic& a, const Diagnostic& b) { return order(a) < order(b); });
  const auto same = [](const Diagnostic& a, const Diagnostic& b) {
    return order(a) == order(b) && a.message == b.message;
  };
  result.erase(std::unique(result.begin(), result.end(), same), result.end());
  return result;
}

}  // namespace attn::diag
