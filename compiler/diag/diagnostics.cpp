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
  Diagnostic diagnostic{code, span, std::move(message), {}, {}};
  if (diagnostics_.size() >= kMost && has_errors()) return dropped_ = std::move(diagnostic);
  return diagnostics_.emplace_back(std::move(diagnostic));
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
  std::vector<Diagnostic> result = diagnostics_;
  std::ranges::stable_sort(
      result, [](const Diagnostic& a, const Diagnostic& b) { return order(a) < order(b); });
  const auto same = [](const Diagnostic& a, const Diagnostic& b) {
    return order(a) == order(b) && a.message == b.message;
  };
  result.erase(std::unique(result.begin(), result.end(), same), result.end());
  return result;
}

}  // namespace attn::diag
