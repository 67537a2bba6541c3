#include <limits>

#include "compiler/ast/parse.h"
#include "compiler/check/default_checks.h"
#include "compiler/check/static_checks.h"
#include "compiler/driver/driver.h"
#include "compiler/rewrite/pass.h"
#include "compiler/sema/library.h"
#include "runtime/base/check.h"

namespace attn::driver {
namespace {

// IR that does not verify is a compiler bug, whatever the spec.
void check_verified(const ir::Attention& attention) {
  const Status status = ir::verify(attention);
  ATTN_CHECK(status.ok(), status.error().message);
}

// Maximum number of expressions visited for all sizes of a spec: about 5 s.
constexpr std::uint64_t kMostWork = 1'000'000;

struct Parsed {
  ast::Spec spec;
  sema::Library library;
};

std::optional<Parsed> parse(const support::Source& source, diag::Sink& sink) {
  std::optional<ast::Spec> spec = ast::parse(source, sink);
  if (!spec || sink.has_errors()) return std::nullopt;
  sema::Library library = spec->is_library ? sema::Library{} : sema::load_imports(*spec, sink);
  return Parsed{std::move(*spec), std::move(library)};
}

std::optional<ir::Attention> analyze(const Parsed& parsed, const sema::Bindings& bindings,
                                     diag::Sink& sink, masks::MaskAnalyses* analyses) {
  sema::Spans spans;
  const std::optional<ir::Attention> written =
      sema::analyze(parsed.spec, parsed.library, bindings, sink, &spans);
  if (!written || sink.has_errors()) return std::nullopt;
  check_verified(*written);
  check::check_defaults(parsed.spec, *written, sink);
  const target::Context context{.analyses = analyses};
  const auto simplified = [&context](const ir::Attention& one) {
    return rewrite::run_pass("simplify", rewrite::run_pass("without_keys", one, context), context);
  };
  ir::Attention attention = simplified(*written);
  check::check_statically({*written, attention, spans, parsed.spec.name.span}, context, sink);
  for (std::size_t i = 0; i < attention.branches.size(); ++i) {
    const ir::Attention& branch = written->branches[i].attention;
    attention.branches[i].attention = simplified(branch);
    check::check_statically(
        {branch, attention.branches[i].attention, spans.branches[i], parsed.spec.name.span},
        context, sink);
  }
  if (sink.has_errors()) return std::nullopt;
  return attention;
}

// Analyzes the variants in turn until the work limit; `take` receives those without errors. Returns
// the number of variants.
template <class Take>
std::size_t analyze_all(const support::Source& source, const sema::Bindings& bindings,
                        std::uint64_t most_work, diag::Sink& sink, masks::MaskAnalyses* analyses,
                        Take take) {
  const std::optional<Parsed> parsed = parse(source, sink);
  if (!parsed) return 1;
  const std::vector<sema::Bindings> all = sema::variants(parsed->spec, bindings);
  for (const sema::Bindings& variant : all) {
    if (sink.work() > most_work) {
      sink.set_stopped();
      break;
    }
    if (all.size() > 1) sink.begin_sizes(words_of(variant, bindings));
    std::optional<ir::Attention> attention = analyze(*parsed, variant, sink, analyses);
    if (!attention) break;
    take(variant, std::move(*attention));
  }
  return all.size();
}

}  // namespace

std::optional<ir::Attention> front_end(const support::Source& source,
                                       const sema::Bindings& bindings, diag::Sink& sink,
                                       masks::MaskAnalyses* analyses,
                                       const std::set<std::string, std::less<>>& replaced) {
  std::optional<Parsed> parsed = parse(source, sink);
  if (parsed) parsed->spec.replaced = replaced;
  return parsed ? analyze(*parsed, bindings, sink, analyses) : std::nullopt;
}

std::string words_of(const sema::Bindings& variant, const sema::Bindings& bindings) {
  std::string words;
  for (const auto& [name, value] : variant) {
    const auto given = bindings.find(name);
    if (given != bindings.end() && given->second == value) continue;
    words += (words.empty() ? "" : " ") + name + "=" + value;
  }
  return words;
}

std::vector<Variant> front_end_of_all_sizes(const support::Source& source,
                                            const sema::Bindings& bindings, diag::Sink& sink,
                                            masks::MaskAnalyses* analyses) {
  std::vector<Variant> variants;
  analyze_all(source, bindings, std::numeric_limits<std::uint64_t>::max(), sink, analyses,
              [&](const sema::Bindings& variant, ir::Attention attention) {
                variants.push_back({variant, std::move(attention)});
              });
  return variants;
}

CheckedSizes check_all_sizes(const support::Source& source, const sema::Bindings& bindings,
                             diag::Sink& sink) {
  CheckedSizes checked;
  const auto take = [&](const sema::Bindings&, ir::Attention attention) {
    if (++checked.looked_at == 1) checked.first = std::move(attention);
  };
  checked.plans = analyze_all(source, bindings, kMostWork, sink, nullptr, take);
  if (sink.has_errors()) checked.first.reset();
  return checked;
}

std::vector<sema::Bindings> variants(const support::Source& source,
                                     const sema::Bindings& bindings) {
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec) return {bindings};
  return sema::variants(*spec, bindings);
}

std::optional<std::size_t> check_library(const support::Source& source, diag::Sink& sink) {
  diag::Sink unheard(source);
  const std::optional<ast::Spec> spec = ast::parse(source, unheard);
  if (!spec || !spec->is_library) return std::nullopt;
  const sema::Library library = sema::load_imports(*spec, sink);
  const std::size_t count = sema::check_library(*spec, library, sink);
  return sink.has_errors() ? std::nullopt : std::optional(count);
}

}  // namespace attn::driver
