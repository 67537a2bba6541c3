#include "compiler/ast/parse.h"

#include <fmt/format.h>

#include "compiler/support/text.h"

namespace attn::ast {

bool is_readable(const support::Source& source, diag::Sink& sink) {
  if (!support::is_text(source.text())) {
    const bool utf16 = support::has_utf16_mark(source.text());
    sink.report(source.is_json() ? diag::Code::json_syntax : diag::Code::unexpected_character,
                {0, 0}, utf16 ? "the file is UTF-16 text" : "the file is not text")
        .help = utf16 ? "save it as UTF-8" : "a spec is UTF-8 text";
    return false;
  }
  if (source.text().size() <= support::kMaxSourceBytes) return true;
  sink.report(diag::Code::too_large, {0, 0},
              fmt::format("the file is larger than {} KiB", support::kMaxSourceBytes / 1024));
  return false;
}

namespace {

struct Parsed {
  explicit Parsed(const support::Source& source)
      : sink(source),
        spec(source.is_json() ? parse_json(source, sink) : parse_dsl(source, sink, &incomplete)) {}

  diag::Sink sink;
  std::optional<Spec> incomplete;
  std::optional<Spec> spec;
};

const Parsed& parsed(const support::Source& source) {
  const auto& kept = source.once([&source] { return std::make_shared<const Parsed>(source); });
  return *static_cast<const Parsed*>(kept.get());
}

}  // namespace

std::optional<Spec> parse(const support::Source& source, diag::Sink& sink) {
  sink.adopt(parsed(source).sink, 0);
  return parsed(source).spec;
}

std::optional<Spec> parse_incomplete(const support::Source& source) {
  return parsed(source).incomplete;
}

}  // namespace attn::ast
