#include "tools/page/mask_view.h"

#include <fmt/format.h>

#include "compiler/pictures/drawing.h"
#include "tools/page/expressions.h"

namespace attn::tools::page {
namespace {

constexpr std::size_t kMostSvgBytes = 700'000;
constexpr std::int64_t kMostBlocks = 256, kFewBlocks = 32;  // along an axis

std::string svg_of(const pictures::Picture& picture) {
  std::string svg = pictures::to_svg(pictures::drawing_of(picture), std::nullopt);
  // Styles of an SVG in a page are those of the whole page, which has its own.
  constexpr std::string_view kEnd = "</style>\n";
  const std::size_t begin = svg.find("<style>");
  const std::size_t end = svg.find(kEnd);
  if (begin != svg.npos && end != svg.npos) svg.erase(begin, end + kEnd.size() - begin);
  return svg;
}

// "120e3p1f": how many cells of each kind, row by row.
std::string runs_of(const masks::BlockMap& map) {
  constexpr char kLetters[] = {'e', 'p', 'f'};
  const auto letter = [&](masks::Block block) {
    if (block == masks::Block::empty) return kLetters[0];
    return block == masks::Block::partial ? kLetters[1] : kLetters[2];
  };
  std::string text;
  for (std::size_t at = 0; at < map.blocks.size();) {
    std::size_t end = at + 1;
    while (end < map.blocks.size() && map.blocks[end] == map.blocks[at]) ++end;
    text += fmt::format("{}{}", end - at, letter(map.blocks[at]));
    at = end;
  }
  return text;
}

Json panel_json(const pictures::Picture& picture, const pictures::Panel& panel,
                const pictures::Tiles& tiles) {
  return {{"title", pictures::title_of(picture, panel)},
          {"batch", panel.places.front().batch},
          {"head", panel.places.front().head},
          {"x", tiles.x},
          {"y", tiles.y},
          {"tile", {tiles.width, tiles.height}},
          {"cells", {panel.cells.map.height, panel.cells.map.width}},
          {"map", runs_of(panel.cells.map)}};
}

Json panels_json(const pictures::Picture& picture) {
  Json panels = Json::array();
  const pictures::Drawing drawing = pictures::drawing_of(picture);
  for (const pictures::Shape& shape : drawing.shapes) {
    const auto* tiles = std::get_if<pictures::Tiles>(&shape);
    if (tiles == nullptr) continue;
    panels.push_back(panel_json(picture, picture.panels[panels.size()], *tiles));
  }
  return panels;
}

std::string clauses_at(SourcePos pos, const std::vector<ExplainedClause>& clauses) {
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    const bool inside = clauses[i].line <= pos.line && pos.line <= clauses[i].last_line;
    if (inside && pos.line != 0) return fmt::format("{}", i);
  }
  return "";
}

// Inks that masks are drawn with.
constexpr std::pair<pictures::Ink, const char*> kInks[] = {
    {pictures::Ink::paper, "paper"},    {pictures::Ink::edge, "edge"},
    {pictures::Ink::text, "text"},      {pictures::Ink::faint, "faint"},
    {pictures::Ink::empty, "empty"},    {pictures::Ink::full, "full"},
    {pictures::Ink::partial, "partial"}};

std::string hex_of(pictures::Ink ink, pictures::Theme theme) {
  const pictures::Colour colour = pictures::colour_of(ink, theme);
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

}  // namespace

Result<pictures::Picture> picture_for_page(const ir::Attention& attention,
                                           const reference::Bindings& values) {
  pictures::Options options;
  options.blocks = kMostBlocks;
  while (true) {
    ATTN_ASSIGN(pictures::Picture picture, pictures::picture_of(attention, values, options));
    const masks::BlockMap& map = picture.panels.front().cells.map;
    if (std::max(map.height, map.width) <= kFewBlocks || svg_of(picture).size() <= kMostSvgBytes) {
      return picture;
    }
    options.cell = {2 * map.rows, 2 * map.columns};
  }
}

Json mask_view(const ir::Attention& attention, const reference::Bindings& values,
               const pictures::Picture& picture, const std::vector<ExplainedClause>& clauses,
               const WrittenConditions& written) {
  const ir::Attention masked = masks_of_values::with_lengths_as_masks(attention);
  const std::vector<Condition> conditions = conditions_of(masked);
  Json list = Json::array();
  for (const Condition& condition : conditions) {
    const std::string of = clauses_at(condition.pos, clauses);
    const std::uint32_t begin = written.at(condition.pos).line;  // its operator may be further down
    const std::uint32_t line = begin == 0 ? condition.pos.line : begin;
    list.push_back({{"text", condition.text},
                    {"line", of.empty() ? Json(nullptr) : Json(line)},
                    {"clauses", of}});
  }
  Json data = nodes_json(masked, conditions, values);
  data["conditions"] = list;
  data["tensors"] = tensors_json(masked, conditions, values);
  data["rows"] = picture.rows;
  data["columns"] = picture.columns;
  data["row_name"] = picture.row_name;
  const masks::BlockMap& map = picture.panels.front().cells.map;
  data["cell"] = {map.rows, map.columns};
  data["panels"] = panels_json(picture);
  return {{"picture", svg_of(picture)}, {"conditions", list}, {"data", data}};
}

std::string colours_text() {
  const auto colours = [](pictures::Theme theme) {
    std::string text;
    for (const auto& [ink, name] : kInks) {
      text += fmt::format("--ink-{}:{};", name, hex_of(ink, theme));
    }
    return text;
  };
  std::string text = fmt::format(":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}\n",
                                 colours(pictures::Theme::light), colours(pictures::Theme::dark));
  text += fmt::format("@media print{{:root{{{}}}}}\n", colours(pictures::Theme::light));
  for (const auto& [ink, name] : kInks) {
    text += fmt::format(".picture .i{}{{fill:var(--ink-{})}}\n", static_cast<int>(ink), name);
  }
  return text;
}

masks_of_values::Share share_of(const pictures::Picture& picture) {
  masks_of_values::Share all;
  all.exact = picture.left_out == 0;
  for (const pictures::Panel& panel : picture.panels) {
    const auto places = static_cast<double>(panel.places.size());
    all.visible += places * panel.cells.share.visible;
    all.all += places * panel.cells.share.all;
    all.exact = all.exact && panel.cells.share.exact;
  }
  return all;
}

}  // namespace attn::tools::page
