#include "compiler/diag/diagnostics.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "compiler/support/text.h"

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

struct Seen {
  const Diagnostic* found;
  std::size_t sizes;  // how many sizes had begun
};

// One finding for different sizes.
using Group = std::vector<Seen>;

// Groups findings with the same code and span: the n-th finding for one set of sizes matches the
// n-th for another.
std::vector<Group> groups(std::span<const Seen> all) {
  std::vector<Group> groups;
  for (const Seen& seen : all) {
    const auto says_same = [&](const Seen& other) {
      return other.sizes == seen.sizes && other.found->message == seen.found->message;
    };
    if (std::ranges::any_of(
            groups, [&](const Group& group) { return std::ranges::any_of(group, says_same); })) {
      continue;
    }
    const auto lacks = [&](const Group& group) { return group.back().sizes != seen.sizes; };
    const auto group = std::ranges::find_if(groups, lacks);
    (group == groups.end() ? groups.emplace_back() : *group).push_back(seen);
  }
  return groups;
}

// The first of the group; names the sizes it holds for unless it holds for all.
Diagnostic merged(const Group& group, const std::vector<std::string>& sizes) {
  Diagnostic diagnostic = *group.front().found;
  const bool says_same = std::ranges::all_of(
      group, [&](const Seen& one) { return one.found->message == diagnostic.message; });
  const bool is_of_all = group.front().sizes == 0 || group.size() == sizes.size();
  if (says_same && is_of_all) return diagnostic;
  diagnostic.message += " (with " + sizes[group.front().sizes - 1];
  if (const std::size_t more = group.size() - 1; more > 0) {
    diagnostic.message += (says_same ? ", and with " : "; similar with ") + std::to_string(more) +
                          (more == 1 ? " other size" : " other sizes");
  }
  diagnostic.message += ")";
  return diagnostic;
}

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

void Diagnostic::add_replacement(support::Span at, std::string_view text) {
  if (text.empty()) return;
  fixes.push_back({"write " + support::quoted(text), {{at, std::string(text)}}});
}

Diagnostic& Sink::report(Code code, support::Span span, std::string message) {
  Diagnostic diagnostic{code, span, std::move(message), context_, {}};
  if (diagnostics_.size() >= kMost && has_errors()) return dropped_ = std::move(diagnostic);
  sizes_of_.push_back(sizes_.size());
  return diagnostics_.emplace_back(std::move(diagnostic));
}

Sink::Added Sink::add(support::Source source) {
  const std::uint32_t last = further_.empty() ? 0 : further_.back().offset;
  const support::Source& before = further_.empty() ? *source_ : *further_.back().source;
  // One byte between them, so that the end of one is not the beginning of the next.
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
    for (const Fix& fix : found.fixes) {
      Fix& copy = diagnostic.fixes.emplace_back(fix);
      for (Edit& edit : copy.edits) edit.span = moved(edit.span);
    }
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
  std::vector<Seen> seen;
  for (std::size_t i = 0; i < diagnostics_.size(); ++i) {
    seen.push_back({&diagnostics_[i], sizes_of_[i]});
  }
  std::ranges::stable_sort(
      seen, [](const Seen& a, const Seen& b) { return order(*a.found) < order(*b.found); });
  std::vector<Diagnostic> result;
  for (auto begin = seen.begin(); begin != seen.end();) {
    const auto end = std::find_if(begin, seen.end(), [&](const Seen& one) {
      return order(*one.found) != order(*begin->found);
    });
    for (const Group& group : groups({begin, end})) result.push_back(merged(group, sizes_));
    begin = end;
  }
  return result;
}

}  // namespace attn::diag
