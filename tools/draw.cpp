#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/driver/driver.h"
#include "compiler/ir/bound.h"
#include "compiler/pictures/drawing.h"
#include "compiler/pictures/picture.h"
#include "compiler/pictures/terminal.h"
#include "compiler/planner/search.h"
#include "compiler/sharding/rank_program.h"
#include "compiler/support/text.h"
#include "runtime/io/file.h"
#include "runtime/ranks/exchanges.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/drawn.h"
#include "tools/inputs.h"
#include "tools/number.h"
#include "tools/ranks.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/subject.h"
#include "tools/target_option.h"

namespace attn::tools {
namespace draw_command {
namespace {

constexpr int kMostDrawn = 64;  // ranks, which have a line each in the legend

struct Options {
  std::string path;
  std::string output;  // empty: text on standard output
  std::string theme;   // empty: that of the reader (SVG), light (PNG)
  sema::Bindings bindings;
  RankOptions ranks;  // with the values of inputs
  pictures::Options picture;
  bool score = false;
  std::optional<double> score_at;
  bool parts = false;
  std::string target;
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  Format format = Format::text;
};

bool is_svg(const std::string& path) { return path.ends_with(".svg"); }
bool is_png(const std::string& path) { return path.ends_with(".png"); }

Status check_options(const Options& options) {
  const auto wrong = [](const char* what) -> Status { return {ErrorCode::invalid_argument, what}; };
  const bool lowers = !options.target.empty() || options.lowering != planner::kAnyLowering ||
                      !target::without(options.rewrites).empty();
  const bool divides = options.ranks.ranks > 0;
  if (lowers && !options.parts) {
    return wrong("--target, --strategy, --engine and --without need --parts");
  }
  if (divides && (options.score || options.parts))
    return wrong("--ranks, --score and --parts colour the same cells");
  RankOptions links = options.ranks;
  links.inputs.clear();  // which pictures without ranks have too
  if (const auto known = links_of(links); !known.ok()) {
    if (divides) return known.error();
    return wrong("--link, --network and --ranks-per-host need --ranks");
  }
  if (divides && is_plan(options.path)) return wrong("--ranks has no meaning for a plan");
  if (options.ranks.ranks > kMostDrawn) return wrong("a picture has room for at most 64 ranks");
  if (lowers && is_plan(options.path)) {
    return wrong("--target, --strategy, --engine and --without have no meaning for a plan");
  }
  if (options.score && options.parts) return wrong("--score and --parts colour the same cells");
  if (options.score_at && !options.score) return wrong("--score-at needs --score");
  if (!options.theme.empty() && options.output.empty()) return wrong("--theme needs -o");
  if (options.output.empty() || is_svg(options.output) || is_png(options.output)) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("-o {}: the name ends in neither .svg nor .png", options.output)};
}

std::optional<pictures::Theme> theme_of(const Options& options) {
  if (options.theme.empty()) return std::nullopt;
  return options.theme == "dark" ? pictures::Theme::dark : pictures::Theme::light;
}

struct Kernels {
  std::string lowering;
  std::vector<engines::Coverage> all;
};

// Kernels of the strategy that is asked for, or that `compile` tries first, without asking cuDNN.
Result<Kernels> kernels_of(const Options& options, const Spec& spec) {
  driver::CompileOptions how;
  ATTN_ASSIGN(how.target,
              find_target(options.target.empty() ? kDefaultTarget : options.target, ""));
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  how.analyses = spec.analyses.get();
  ATTN_ASSIGN(const auto search, driver::search_of(spec.attention, how));
  ATTN_ASSIGN(const planner::Candidate* best, search->next());
  return Kernels{std::string(best->strategy->name), best->lowered->kernels};
}

// Kernels of the plan.
Result<Kernels> kernels_of(const plan::Bundle& file, const Spec& spec) {
  ATTN_ASSIGN(const Plans plans, plans_of(file, false));
  ATTN_ASSIGN(planner::Lowered lowered, driver::lowered_again(spec.attention, plans.forward));
  return Kernels{plans.forward.strategy, std::move(lowered.kernels)};
}

Result<Kernels> kernels_of(const Options& options, const Subject& subject) {
  if (!options.parts) return Kernels();
  return subject.file ? kernels_of(*subject.file, subject.spec) : kernels_of(options, subject.spec);
}

// What each rank computes, of the sharding that is chosen.
struct Shares {
  std::vector<pictures::Owned> owned;
  std::vector<std::string> owners;
  std::string division;
};

Result<Shares> shares_of(const Options& options, const Spec& spec) {
  if (options.ranks.ranks == 0) return Shares();
  ATTN_ASSIGN(const auto sharded, shard(spec, options.ranks, kDefaultTarget));
  const sharding::Choice& choice = sharded->choice;
  const ranks::Division division =
      sharding::rank_programs(choice.sharding, sharded->map, spec.attention).division;
  Shares shares;
  shares.division = division.sharding;
  double all = 0;
  for (const sharding::RankEstimate& rank : choice.estimate.ranks) all += rank.work;
  for (const ranks::Program& program : division.ranks) {
    const double work = choice.estimate.ranks[static_cast<std::size_t>(program.rank)].work;
    shares.owners.push_back(fmt::format("rank {}: {:.3g} % of the work", program.rank,
                                        all == 0 ? 0 : 100 * work / all));
    const ranks::Interval heads =
        ranks::heads_of(ranks::Divided::rows, program.key_heads, division);
    for (const ranks::Part& part : program.parts) {
      shares.owned.push_back(
          {static_cast<std::uint8_t>(program.rank), heads, part.rows, part.keys});
    }
  }
  return shares;
}

Result<Drawn> drawn_of(const Options& options, const Subject& subject) {
  const Spec& spec = subject.spec;
  const Needs needs = options.score ? Needs::masks_and_scores : Needs::masks;
  const bool is_alone = !options.parts && options.ranks.ranks == 0;
  const ir::Attention attention = is_alone ? for_picture(spec.attention, needs) : spec.attention;
  ATTN_RETURN_IF_ERROR(ir::check_bound(attention));
  ATTN_ASSIGN(Inputs inputs,
              make_inputs(attention, options.ranks.inputs, Missing::lifelike, needs));
  ATTN_ASSIGN(Kernels kernels, kernels_of(options, subject));
  pictures::Options how = options.picture;
  if (options.score) how.score = options.score_at.value_or(1);
  how.kernels = kernels.all;
  how.lowering = std::move(kernels.lowering);
  ATTN_ASSIGN(Shares shares, shares_of(options, spec));
  how.owned = shares.owned;
  how.owners = std::move(shares.owners);
  how.division = std::move(shares.division);
  return draw_inputs(attention, std::move(inputs), [&](const auto& of, const auto& values) {
    return pictures::picture_of(of, values, how);
  });
}

// Names the values that nobody gave: another picture is as good.
void report_made_up(const Drawn& drawn, const InputTexts& given) {
  std::string made_up;
  for (const auto& [name, origin] : drawn.origins) {
    if (origin != kDefault && !given.contains(name)) made_up += fmt::format(" {}={}", name, origin);
  }
  if (!made_up.empty()) tell_note("inputs that are not given:" + made_up);
}

Json to_json(const Drawn& drawn) {
  const pictures::Picture& picture = drawn.picture;
  Json panels = Json::array();
  for (const pictures::Panel& panel : picture.panels) {
    const masks::BlockMap& map = panel.cells.map;
    Json places = Json::array();
    for (const auto& [batch, head] : panel.places) places.push_back({batch, head});
    panels.push_back({{"places", places},
                      {"cell", {map.rows, map.columns}},
                      {"cells", {map.height, map.width}},
                      {"visible", panel.cells.share.visible},
                      {"share", panel.cells.share.part()},
                      {"exact_share", panel.cells.share.exact},
                      {"full", map.count(masks::Block::full)},
                      {"partial", map.count(masks::Block::partial)},
                      {"empty", map.count(masks::Block::empty)},
                      {"exact", map.exactness == masks::Exactness::exact}});
    if (panel.computed && picture.division.empty())
      panels.back()["computed"] = panel.computed->scores;
  }
  Json json = {{"name", picture.name},        {"rows", picture.rows},
               {"columns", picture.columns},  {"by_batch", picture.by_batch},
               {"by_head", picture.by_head},  {"panels", panels},
               {"left_out", picture.left_out}};
  if (picture.score) {
    json["score"] = {{"before", *picture.score},
                     {"change", {picture.least, picture.most}},
                     {"has_nan", picture.has_nan}};
  }
  if (!picture.division.empty()) {
    json["sharding"] = picture.division;
    json["ranks"] = picture.kernels;
  } else if (!picture.kernels.empty()) {
    json["strategy"] = picture.lowering;
    json["parts"] = picture.kernels;
  }
  json["inputs"] = Json::object();
  for (const auto& [name, origin] : drawn.origins) json["inputs"][name] = origin;
  return json;
}

Status write(const Options& options, const pictures::Picture& picture) {
  const pictures::Drawing drawing = pictures::drawing_of(picture);
  std::string bytes;
  if (is_png(options.output)) {
    ATTN_ASSIGN(bytes,
                pictures::to_png(drawing, theme_of(options).value_or(pictures::Theme::light)));
  } else {
    bytes = pictures::to_svg(drawing, theme_of(options));
  }
  return io::write_file(options.output, std::as_bytes(std::span(bytes)));
}

Status draw(const Options& options, const Subject& subject) {
  Options fitted = options;
  const bool prints = options.output.empty() && options.format == Format::text;
  if (prints) {
    fitted.picture.owners.resize(static_cast<std::size_t>(options.ranks.ranks));
    fitted.picture = pictures::for_terminal(fitted.picture, static_cast<std::int64_t>(line_width()),
                                            output_paint().colours());
  }
  ATTN_ASSIGN(const Drawn drawn, drawn_of(fitted, subject));
  if (!options.output.empty()) ATTN_RETURN_IF_ERROR(write(options, drawn.picture));
  if (options.format == Format::json)
    print_json(to_json(drawn));
  else
    report_made_up(drawn, options.ranks.inputs);
  if (prints) fmt::print("{}", pictures::to_terminal(drawn.picture, output_paint().colours()));
  return {};
}

int run(const Options& options) {
  if (const Status status = check_options(options); !status.ok()) {
    return report(status.error(), options.format);
  }
  const SubjectOutcome outcome =
      read_subject(options.path, options.bindings, options.format, options.ranks.inputs);
  if (!outcome.subject) return outcome.exit_code;
  const Status status = draw(options, *outcome.subject);
  if (status.ok()) return kOk;
  return report(status.error(), options.format, outcome.subject->spec.source.get());
}

void add_blocks(CLI::App& command, pictures::Options& picture) {
  const auto take = [&picture](const std::string& text) {
    const std::string_view all = text;
    const std::size_t comma = std::min(all.find(','), all.size());
    const auto rows = parse_number<std::int64_t>(all.substr(0, comma));
    const auto columns = parse_number<std::int64_t>(all.substr(std::min(comma + 1, all.size())));
    if (!rows || !columns || *rows < 1 || *columns < 1) {
      throw CLI::ValidationError(
          "--blocks",
          fmt::format("'{}' is not M,N, both positive 64-bit integers", support::printable(text)));
    }
    picture.cell = {*rows, *columns};
  };
  command
      .add_option_function<std::string>(
          "--blocks", take,
          "Draw blocks of M rows and N columns: full, partial or empty (1,1: scores)")
      ->type_name("M,N");
}

template <typename Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, std::optional<Number>& number,
                        const std::string& description) {
  const auto take = [name, &number](const std::string& text) {
    number = parse_number<Number>(text);
    if (number && std::isfinite(static_cast<double>(*number))) return;
    constexpr const char* kKind = std::is_integral_v<Number> ? "64-bit integer" : "finite number";
    throw CLI::ValidationError(name,
                               fmt::format("'{}' is not a {}", support::printable(text), kKind));
  };
  return command.add_option_function<std::string>(name, take, description);
}

}  // namespace
}  // namespace draw_command

void add_draw(CLI::App& app, Action& action) {
  using namespace draw_command;
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("draw", "Draw the mask of a spec: each score, or blocks of scores");
  command
      ->add_option("spec", options->path, "Spec (.attn, .attn.json, - for standard input) or plan")
      ->type_name("SPEC|PLAN")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "Picture to write; without it, the picture is printed as text")
      ->type_name("FILE.svg|FILE.png");
  add_bind(*command, options->bindings);
  add_in(*command, options->ranks.inputs);
  add_number(*command, "--b", options->picture.batch, "Draw one batch, instead of all that differ")
      ->type_name("N");
  add_number(*command, "--h", options->picture.head, "Draw one head, instead of all that differ")
      ->type_name("N");
  add_blocks(*command, options->picture);
  command->add_flag("--score", options->score, "Colour by how the score changes");
  add_number(*command, "--score-at", options->score_at, "The score whose change is drawn")
      ->default_text("1")
      ->type_name("X");
  command->add_flag("--parts", options->parts,
                    "Colour by what the kernels compute: parts, blocks, what is in vain");
  add_ranks(*command, options->ranks);
  add_target_option(*command, options->target);
  add_strategy(*command, options->lowering, options->rewrites);
  command
      ->add_option("--theme", options->theme,
                   "Colours (default: the reader's in .svg, light in .png)")
      ->type_name("light|dark")
      ->check(CLI::IsMember({"light", "dark"}));
  add_deny(*command);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
