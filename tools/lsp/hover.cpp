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

// The share and the picture of all masks.
std::string masks_text(const Request& request) {
  const auto& masks = request.document.slow.masks;
  if (!masks) return "";
  if (masks->picture.empty()) {
    return masks->reason.empty() ? "" : "No picture: " + masks->reason;
  }
  return fmt::format("```text\n{}```", masks->picture);
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

std::string markdown(const Request& request, const Use& use) {
  const Analysis& analysis = request.analysis;
  const Symbol& symbol = analysis.index.symbol(use);
  std::string text = fmt::format("```attn\n{}\n```", signature_of(symbol));
  if (const std::string value = value_of(analysis, symbol); !value.empty()) {
    put_paragraph(text, fmt::format("`{}`: {}", symbol.name, value));
  }
  put_paragraph(text, prose_of(symbol));
  if (symbol.meaning == Meaning::import) put_paragraph(text, functions_of(request, use));
  put_paragraph(text, origin_text(origin_of(analysis, symbol)));
  if (is_mask_name(symbol)) put_paragraph(text, masks_text(request));
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
            {"value", markdown(request, *use)}}},
          {"range", to_json(request.document.text.range(use->span))}};
}

}  // namespace attn::tools::lsp
