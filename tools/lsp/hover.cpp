#include <fmt/format.h>

#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

bool is_mask_name(const Symbol& symbol) {
  return symbol.meaning == Meaning::attention ||
         (symbol.meaning == Meaning::word && symbol.word == WordKind::clause &&
          symbol.name == "mask");
}

// Where an imported name is from: "std:masks.attn".
std::string origin_of(const Analysis& analysis, const Symbol& symbol) {
  if (!symbol.definition) return "";
  const diag::Location at = analysis.locate(*symbol.definition);
  return at.source == analysis.source.get() ? "" : at.source->name();
}

std::string origin_text(const std::string& origin) {
  constexpr std::string_view kStandard = "std:";
  if (origin.empty()) return "";
  if (!origin.starts_with(kStandard)) return fmt::format("from {}", origin);
  return fmt::format("from {} of the standard library", origin.substr(kStandard.size()));
}

// Lines that are not prose. Only Markdown marks them.
std::string block(const Request& request, std::string_view language, std::string_view lines) {
  if (lines.ends_with('\n')) lines.remove_suffix(1);
  return request.client.has_markdown ? fmt::format("```{}\n{}\n```", language, lines)
                                     : std::string(lines);
}

// The share and the picture of all masks.
std::string masks_text(const Request& request) {
  const auto& masks = request.document.slow.masks;
  if (!masks || masks->picture.empty()) return "";
  return block(request, "text", masks->picture);
}

std::string no_picture_text(const Request& request) {
  const auto& masks = request.document.slow.masks;
  if (!masks || !masks->picture.empty() || masks->reason.empty()) return "";
  return "No picture: " + masks->reason;
}

// The functions that an import brings.
std::string functions_of(const Request& request, const Use& use) {
  const std::string& path = request.analysis.index.symbol(use).name;
  std::string text;
  for (const Symbol& symbol : request.analysis.index.symbols()) {
    if (symbol.meaning != Meaning::function) continue;
    if (!origin_of(request.analysis, symbol).ends_with(path)) continue;
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", symbol.name);
  }
  return text;
}

void put_paragraph(std::string& text, const std::string& paragraph) {
  if (paragraph.empty()) return;
  text += (text.empty() ? "" : "\n\n") + paragraph;
}

// A paragraph of Markdown; without Markdown, without its marks.
std::string prose(const Request& request, std::string markdown) {
  if (!request.client.has_markdown) std::erase(markdown, '`');
  return markdown;
}

std::string text_of(const Request& request, const Use& use) {
  const Analysis& analysis = request.analysis;
  const Symbol& symbol = analysis.index.symbol(use);
  std::string text = block(request, "attn", signature_of(symbol));
  const auto put = [&](std::string paragraph) {
    put_paragraph(text, prose(request, std::move(paragraph)));
  };
  if (const std::string value = value_of(analysis, symbol); !value.empty()) {
    put(fmt::format("`{}`: {}", symbol.name, value));
  }
  put(prose_of(symbol));
  if (symbol.meaning == Meaning::import) put(functions_of(request, use));
  put(origin_text(origin_of(analysis, symbol)));
  if (!is_mask_name(symbol)) return text;
  put(no_picture_text(request));
  put_paragraph(text, masks_text(request));
  return text;
}

}  // namespace

bool shows_masks(const Request& request) {
  const Use* use = request.analysis.index.at(request.offset());
  return use != nullptr && is_mask_name(request.analysis.index.symbol(*use));
}

Json hover(const Request& request) {
  const Use* use = request.analysis.index.at(request.offset());
  if (!use) return nullptr;
  return {{"contents",
           {{"kind", request.client.has_markdown ? "markdown" : "plaintext"},
            {"value", text_of(request, *use)}}},
          {"range", to_json(request.document.text.range(use->span))}};
}

}  // namespace attn::tools::lsp
