#include "compiler/lowering/native/kernel_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/lowering/native/kernel_names.h"
#include "compiler/lowering/native/row_blocks.h"
#include "compiler/lowering/native/tiles.h"
#include "runtime/base/ceil_div.h"

namespace attn::lowering::native {
namespace {

// Plans are files that others may have written.
constexpr std::int64_t kMostValue = std::int64_t{1} << 31;  // of a number in the text
constexpr std::size_t kMostNumbers = 4;                     // of an element of an array

std::optional<std::int64_t> integer(std::string_view text) {
  if (text == "true" || text == "false") return text == "true" ? 1 : 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < 0 || value > kMostValue) return std::nullopt;
  return value;
}

// What is between the first `begin` and the `end` after it.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin);
  if (from == std::string_view::npos) return {};
  text.remove_prefix(from + begin.size());
  return text.substr(0, text.find(end));
}

// The integers and booleans of the struct `Constants`.
class Constants {
 public:
  explicit Constants(std::string_view source) {
    std::string_view text = between(source, "struct Constants {\n", "\n};");
    while (!text.empty()) {
      const std::string_view statement = text.substr(0, text.find(';'));
      text.remove_prefix(std::min(text.size(), statement.size() + 1));
      if (statement.find("static constexpr") != std::string_view::npos) add(statement);
    }
  }

  bool has(std::initializer_list<const char*> names) const {
    return std::ranges::all_of(names, [this](const char* name) { return values_.contains(name); });
  }
  std::int64_t operator[](std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }

 private:
  // "static constexpr bool kA = true, kB = false"
  void add(std::string_view statement) {
    while (!statement.empty()) {
      const std::string_view one = statement.substr(0, statement.find(','));
      statement.remove_prefix(std::min(statement.size(), one.size() + 1));
      const std::size_t equals = one.find(" = ");
      if (equals == std::string_view::npos) continue;
      const std::size_t name = one.find_last_of(" \n", equals - 1) + 1;
      const auto value = integer(one.substr(equals + 3));
      if (value) values_.emplace(one.substr(name, equals - name), *value);
    }
  }

  std::map<std::string, std::int64_t, std::less<>> values_;
};

// The elements "{1, 2, 3}" of an array of the text, of which each is read once.
std::vector<std::vector<std::int64_t>> elements_of(std::string_view source,
                                                   std::string_view array) {
  std::string_view text = between(source, array, "\n};");
  std::vector<std::vector<std::int64_t>> elements;
  while (true) {
    const std::size_t begin = text.find('{'), end = text.find('}', begin);
    if (begin == std::string_view::npos || end == std::string_view::npos) return elements;
    std::string_view rest = text.substr(begin + 1, end - begin - 1);
    text.remove_prefix(end + 1);
    std::vector<std::int64_t>& numbers = elements.emplace_back();
    while (!rest.empty() && numbers.size() <= kMostNumbers) {
      const std::string_view number = rest.substr(0, rest.find(", "));
      numbers.push_back(integer(number).value_or(0));
      rest.remove_prefix(std::min(rest.size(), number.size() + 2));
    }
  }
}

// Blocks of the runs before each, full and partial ones.
struct BlocksBefore {
  std::vector<std::int64_t> full{0}, partial{0};
};

std::optional<BlocksBefore> blocks_before(const std::vector<std::vector<std::int64_t>>& runs) {
  BlocksBefore before;
  for (const std::vector<std::int64_t>& run : runs) {
    if (run.size() != 2) return std::nullopt;
    const bool is_masked = run[0] % 2 == 1;
    before.full.push_back(before.full.back() + (is_masked ? 0 : run[1]));
    before.partial.push_back(before.partial.back() + (is_masked ? run[1] : 0));
  }
  return before;
}

// Counts in a text of lists_text (kernel.h): a tile is {tile, first run, runs, blocks}, a run
// {first, blocks}, whose lowest bit says that it is masked. `tiles` of a list, which `streamed`
// blocks cover.
std::optional<BlockCounts> counts_of(std::string_view source, std::int64_t tiles,
                                     std::int64_t streamed) {
  const auto of_tiles = elements_of(source, "kernels::Tile kTiles[] = {");
  const auto runs = elements_of(source, "kernels::Run kRuns[] = {");
  const std::optional<BlocksBefore> before = blocks_before(runs);
  if (of_tiles.empty() || tiles < 1 || !before) return std::nullopt;
  BlockCounts counts{.lists = ceil_div(static_cast<std::int64_t>(of_tiles.size()), tiles)};
  for (const std::vector<std::int64_t>& tile : of_tiles) {
    if (tile.size() != 4 || tile[1] + tile[2] > static_cast<std::int64_t>(runs.size()))
      return std::nullopt;
    const auto begin = static_cast<std::size_t>(tile[1]);
    const auto end = static_cast<std::size_t>(tile[1] + tile[2]);
    counts.full += before->full[end] - before->full[begin];
    counts.partial += before->partial[end] - before->partial[begin];
  }
  const std::int64_t all = static_cast<std::int64_t>(of_tiles.size()) * streamed;
  counts.skipped = std::max<std::int64_t>(0, all - counts.full - counts.partial);
  return counts;
}

bool makes_lists(const plan::KernelStep& step) {
  return std::ranges::any_of(
      step.launches, [](const plan::Launch& launch) { return launch.kernel == kListsKernel; });
}

std::optional<KernelFacts> facts_of_forward(const plan::KernelStep& step, std::size_t launch) {
  const Constants constants(step.source);
  if (!constants.has({"kGroups", "kKeys", "kRowsOfTile", "kPack", "kStages", "kTiles"}) ||
      constants["kKeys"] == 0) {
    return std::nullopt;
  }
  return KernelFacts{
      .launch = launch,
      .tile = constants["kRowsOfTile"],
      .block = constants["kKeys"],
      .heads = constants["kPack"],
      .depth = constants["kDepth"],
      .width = constants["kWidth"],
      .groups = constants["kGroups"] * std::max<std::int64_t>(1, constants["kShares"]),
      .stages = constants["kStages"],
      .query_stages = constants["kQueries"],
      .table_stages = constants["kTables"],
      .parts = std::max<std::int64_t>(1, constants["kSplits"]),
      .items = constants["kItems"],
      .patch_width = constants["kPatchWidth"],
      .patch_height = constants["kPatchHeight"],
      .has_lengths = constants["kLengths"] != 0,
      .gathers = constants["kGatherKeys"] + constants["kGatherValues"] > 0,
      .makes_lists = makes_lists(step),
      .lists_of_batch = constants["kListsOfBatch"] != 0,
      .lists_of_head = constants["kListsOfUnit"] != 0,
      .blocks = counts_of(step.source, constants["kTiles"],
                          ceil_div(constants["kColumns"], constants["kKeys"]))};
}

std::optional<KernelFacts> facts_of_backward(const plan::KernelStep& step, std::size_t launch) {
  const Constants constants(step.source);
  if (!constants.has({"kBlockRows", "kKeys", "kKeyBlocks", "kRowBlocks"})) return std::nullopt;
  return KernelFacts{
      .backward = true,
      .launch = launch,
      .tile = constants["kKeys"],
      .block = constants["kBlockRows"],
      .depth = constants["kDepth"],
      .width = constants["kWidth"],
      .groups = kGroupsOfBackward,
      .stages = kStagesOfBackward,
      .table_stages = constants["kTable"] != 0 ? kStagesOfBackward : 0,
      .items = constants["kKeyBlocks"] * constants["kBatches"] * constants["kKeyHeads"],
      .divided = constants["kDivided"],
      .has_lengths = constants["kLengths"] != 0,
      .makes_lists = makes_lists(step),
      .lists_of_batch = constants["kListsOfBatch"] != 0,
      .lists_of_head = constants["kListsOfHead"] != 0,
      .blocks = counts_of(step.source, constants["kKeyBlocks"], constants["kRowBlocks"])};
}

// Gradients this launch reduces over key-block parts.
std::vector<std::string> merged_gradients(const plan::Launch& launch) {
  std::vector<std::string> merged;
  for (const plan::KernelArgument& argument : launch.arguments) {
    const plan::TensorOperand* tensor = plan::tensor_of(argument);
    const bool is_merged = tensor != nullptr && (tensor->name == "dk" || tensor->name == "dv");
    if (is_merged) merged.push_back(tensor->name);
  }
  return merged;
}

}  // namespace

std::string_view what_of_kernel(std::string_view name) {
  constexpr std::string_view kKernels[][2] = {
#define ATTN_KERNEL(constant, name, what) {name, what},
#include "compiler/lowering/native/kernel_names.def"
  };
  for (const auto& [known, what] : kKernels) {
    if (known.back() == '_' ? name.starts_with(known) : name == known) return what;
  }
  return {};
}

std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch) {
  const bool converts = launch.kernel == kConvertKernel, merges = launch.kernel == kMergeKernel;
  std::string what(what_of_kernel(launch.kernel));
  if (!converts && !merges) return what;
  const std::vector<std::string> gradients = merged_gradients(launch);
  if (gradients.empty()) return what;
  const std::string merged =
      fmt::format("{}: {}{}", fmt::join(gradients, " and "), what_of_kernel(kMergeKernel),
                  makes_lists(step) ? ", if any" : "");
  return converts ? what + "; " + merged : merged;
}

std::optional<KernelFacts> facts_of(const plan::KernelStep& step) {
  for (std::size_t i = 0; i < step.launches.size(); ++i) {
    if (step.launches[i].kernel == kForwardKernel) return facts_of_forward(step, i);
    if (step.launches[i].kernel == kBackwardKernel) return facts_of_backward(step, i);
  }
  return std::nullopt;
}

}  // namespace attn::lowering::native
