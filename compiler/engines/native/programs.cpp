#include "compiler/engines/native/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "compiler/codegen/epilogue.h"
#include "compiler/codegen/scores.h"
#include "compiler/engines/native/backward.h"
#include "compiler/engines/native/caches.h"
#include "compiler/engines/native/checks.h"
#include "compiler/engines/native/chosen_keys.h"
#include "compiler/engines/native/classes.h"
#include "compiler/engines/native/forward_program.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/patches.h"
#include "compiler/engines/native/quantized.h"
#include "compiler/engines/native/schedules.h"
#include "compiler/engines/native/skeleton.h"
#include "compiler/engines/native/strength_reduction.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/epilogue.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/epilogue.h"
#include "compiler/ir/random_dropout.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/capabilities.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines {
namespace native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostGathered = 128;  // rows of a block, if each lane looks up one
// The keys and values of a section's units are to stay in the L2 cache, at most so many bytes and
// heads, but for a section that would not take so many times as long as its longest tile.
constexpr std::int64_t kBytesOfSection = std::int64_t{32} << 20, kHeadsOfSection = 32;
constexpr double kLongestOfSection = 2;
// Where the GPU makes lists, some may be much longer than others: one in so many tiles comes before
// all sections, so that the last section does not end with a long one.
constexpr std::int64_t kTilesOfFront = 32;
// Lists that the GPU makes are mostly short, such as those of documents, which tiles of two warp
// groups compute faster: 0.258 ms instead of 0.309 for documents of 512 of 4096 keys.
constexpr std::int64_t kGroupsOfLongLists = 3, kKeysOfLongLists = 32768;
// The same of blocks of 8-bit keys: 0.210 ms instead of 0.255 with 192.
constexpr std::int64_t kBlockOfShortLists = 128;
// Blocks of a part, for one warp group and for more, whose results take longer to store and merge.
constexpr double kLeastOfFew = 1, kLeastOfMany = 16;
// Keys that one warp group computes while it stores a part and merges all, and while it reads one
// part more: 3000 clocks, where a block of 128 keys takes 2000 (8 heads of 4096 keys on an H200).
constexpr double kKeysOfStoring = 190, kKeysOfMerging = 16;
// Blocks whose time passes between a part and the next one of a block of threads, as measured: of
// one warp group, of keys in pages, of more warp groups, whose parts are four times as wide.
constexpr double kBetweenFew = 4, kBetweenInPages = 9, kBetweenMany = 24;
constexpr std::int64_t kMostBytesOfParts = std::int64_t{128} << 20;  // of workspace
constexpr double kWorthwhile = 0.95;                                 // of the time with fewer parts
constexpr double kLongItem = 2;   // times what a multiprocessor computes: divided even of many
constexpr double kReaders = 0.8;  // of the multiprocessors, that read as fast as memory gives
// Columns of o of a warp group; registers spill beyond, unless blocks have few keys.
constexpr std::int64_t kWidestPart = 192, kKeysOfWiderParts = 48;

}  // namespace

class Native {
 public:
  Native(const ir::Attention& whole, const Form& form, const masks::Axes& mask_axes,
         const target::Context& context)
      : whole_(whole),
        form_(form),
        attention_(form.attention),
        dims_(attention_.dims),
        mask_axes_(mask_axes),
        context_(context),
        band_(masks_read_inputs(attention_) || has_lengths()
                  ? closed_band(attention_, ir::Op::column_, context_.deadline.get())
                  : std::nullopt) {}

  // What the program of `make` computes: scores, by the rate of its tile. Errors: those of `make`.
  Result<double> work(std::size_t refused) {
    ATTN_ASSIGN(const Choice* choice, chosen(refused));
    return choice->work;
  }

  // Makes the program of the tile that is best after the `refused` best ones.
  Result<NativeProgram> make(std::size_t refused) {
    ATTN_ASSIGN(const Choice* choice, chosen(refused));
    kernel_ = choice->kernel;
    kernel_.statistics = form_.statistics, kernel_.chosen = form_.chosen;
    kernel_.parts = kernel_.is_scheduled() ? 1 : parts();
    kernel_.unshared = why_not_shared(attention_, kernel_);
    kernel_.tiles_of_block = kernel_.made_lists(dims_).tiles_of_block(
        static_cast<std::int64_t>(context_.gpu.multiprocessors));
    kernel_.one_turn = has_one_turn();
    kernel_.section = section();
    const bool one_section = kernel_.section >= kernel_.units(dims_) * dims_[Dim::B];
    if (kernel_.depends_on_inputs() && !one_section) {
      kernel_.front = kernel_.blocks.tiles / kTilesOfFront;
    }
    kernel_.expressions = expressions_of(attention_, kernel_.blocks.masked, kernel_.tile.tables > 0,
                                         kernel_.tile.walks ? kAlignedForPairs : kAlignedForTma);
    if (kernel_.tile.patch) kernel_.expressions.grid = grid_of(attention_);
    for (const ir::Output& output : ir::kOutputs) {
      if (attention_.*output.wanted) kernel_.outputs.emplace_back(output.name);
    }
    NativeProgram made{
        forward_program(whole_, attention_, kernel_, context_), work_of_kernel(), {}, coverage()};
    made.work.launches =
        static_cast<double>(std::get<plan::KernelStep>(made.program.steps.back()).launches.size());
    if (form_.chosen) {
      check_positions(whole_, made.program);
      made.coverage.reset();  // of columns that are numbers in lists
    } else {
      codegen::check_scores(whole_, made.program);
    }
    if (whole_.epilogue) ATTN_RETURN_IF_ERROR(codegen::check_epilogue(whole_, made.program));
    ATTN_RETURN_IF_ERROR(check_program(whole_, made.program));
    return made;
  }

 private:
  // Blocks of keys: of all tiles; those of them that a mask hides in part; of the longest tile of
  // all batches; and of the longest one of the last batch.
  struct Listed {
    double blocks = 0, masked = 0, most = 0, last = 0;
  };
  struct Choice {
    TileUse use;
    double work;
    Kernel kernel;
  };

  // The tile whose blocks take least, by the scores that it computes; not the `refused` best. The
  // first is not a spare one, unless there is no other. Those that only fit are the last of all
  // others.
  Result<const Choice*> chosen(std::size_t refused) {
    if (choices_.empty()) add_tiles();
    if (refused > 0 && !spares_.empty()) add_spares();
    if (choices_.size() <= refused) return refusal_.error();
    return &choices_[refused];
  }

  void add_tiles() {
    for (const Tile& tile : tiles_that_walk()) add(tile);
    const bool only_short = !context_.rewrites.long_forms && !choices_.empty();
    for (const Tile& tile :
         only_short ? std::vector<Tile>() : other_tiles(expressions_of(attention_, true, true))) {
      if (tile.use == TileUse::spare && !choices_.empty())
        spares_.push_back(tile);
      else
        add(tile);
    }
    sort_choices();
  }

  void add_spares() {
    for (const Tile& tile : std::exchange(spares_, {})) add(tile);
    sort_choices();
  }

  void add(const Tile& tile) {
    const Status late = context_.deadline ? context_.deadline->check() : Status();
    Result<Kernel> kernel = late.ok() ? listed(tile) : late.error();
    if (!kernel.ok()) {
      refusal_ = kernel.error();
      return;
    }
    if (tile.walks && !is_even(*kernel)) return;
    const bool beside = tile.of_warps && !has_kernels_of_warps(context_);
    const double work = kernel->blocks.blocks * static_cast<double>(tile.rows() * tile.keys) /
                        (tile.rate * (beside ? context_.gpu.share_of_warps : 1));
    choices_.push_back({tile.use, work * idle_share(*kernel), std::move(*kernel)});
  }

  // Whether all items are alike, so that blocks of threads may have as many as others.
  static bool is_even(const Kernel& kernel) {
    const auto& lists = kernel.blocks.lists;
    return !kernel.makes_lists && !kernel.is_scheduled() &&
           std::ranges::all_of(
               lists, [&](const TileList& list) { return list.blocks == lists.front().blocks; });
  }

  void sort_choices() {
    std::ranges::stable_sort(choices_, {}, &Choice::work);
    const auto best = std::ranges::find_if(
        choices_, [](const Choice& choice) { return choice.use != TileUse::spare; });
    if (best == choices_.end()) return;
    std::rotate(choices_.begin(), best, best + 1);
    std::stable_partition(choices_.begin() + 1, choices_.end(),
                          [](const Choice& choice) { return choice.use != TileUse::fitting; });
  }

  // What all turns of blocks of threads take, compared with their items: the last turn of items
  // that are alike leaves some idle. A single turn may be divided (`parts`).
  double idle_share(const Kernel& kernel) const {
    const double turns = static_cast<double>(kernel.items(dims_)) / multiprocessors();
    const bool alike = kernel.tile.groups > 1 && !kernel.tile.walks && !kernel.tile.of_warps &&
                       !has_lengths() && is_even(kernel);
    return alike && turns > 1 ? std::ceil(turns) / turns : 1;
  }

  // Whether nothing is counted: no item is taken, no part is merged, and no list is made. Kernels
  // that draw random numbers have no register for it: they spill without the counter.
  bool has_one_turn() const {
    const bool fits =
        kernel_.tile.of_warps || static_cast<double>(kernel_.items(dims_)) <= multiprocessors();
    return fits && !kernel_.tile.walks && kernel_.parts == 1 && !kernel_.makes_lists &&
           !kernel_.is_scheduled() && !attention_.is_random();
  }

  // Blocks of threads take turns; with few items, the last turn leaves many multiprocessors idle,
  // or the only one does, or the longest item ends long after the others. A part more that saves
  // little is not worth its merging.
  std::int64_t parts() const {
    if (kernel_.tile.share() > widest_part(kernel_.tile) || kernel_.tile.patch) return 1;
    if (kernel_.tile.walks) return 1;
    if (attention_.wants_amax_s && attention_.dropout) return 1;  // no part knows what others keep
    const Listed all = expected();
    const auto items = static_cast<double>(kernel_.items(dims_));
    if (items >= 2 * multiprocessors() && all.most < kLongItem * all.blocks / multiprocessors()) {
      return 1;
    }
    const double least = is_few() ? kLeastOfFew : kLeastOfMany;
    const auto one_turn = [&](std::int64_t count) {
      return items * static_cast<double>(count) <= multiprocessors();
    };
    std::int64_t best = 1;
    for (std::int64_t count = 2; count <= kMostKeyPieces; ++count) {
      const auto most = static_cast<double>(count) * least;
      if (kernel_.blocks.blocks < items * most || all.most < most) break;
      if (4 * count * kernel_.part_elements(dims_) > kMostBytesOfParts) break;
      const bool alone = one_turn(count);
      const double now = time_of(count, all) + (alone ? storing(count, all) : 0);
      const double before = time_of(best, all) + (alone ? storing(best, all) : 0);
      if (now < kWorthwhile * before) best = count;
    }
    return best;
  }

  // The time of so many parts, in that of a block. More turns do not read keys faster than memory
  // gives them, and batches of unequal lengths end with the last one.
  double time_of(std::int64_t count, const Listed& all) const {
    const auto items = static_cast<double>(kernel_.items(dims_));
    const auto parts = static_cast<double>(count);
    const double turns = std::ceil(items * parts / multiprocessors()), mean = all.blocks / items;
    if (turns == 1) return one_turn_of(all) / parts;
    const auto units =
        static_cast<double>(dims_[Dim::B] * dims_[Dim::Hkv]);  // with keys of their own
    const double reading = mean * units / (kReaders * multiprocessors());
    const double computing =
        has_lengths() && all.most > mean
            ? std::max(all.most, all.blocks * parts / multiprocessors() + all.last) / parts
            : turns * mean / parts;
    return std::max(computing + (count > 1 ? (turns - 1) * between() : 0), reading);
  }
  // The blocks of a tile that decides a single turn: where batches have lengths, the longest of
  // what may be.
  double one_turn_of(const Listed& all) const {
    const auto items = static_cast<double>(kernel_.items(dims_));
    return has_lengths() ? listed(kernel_.blocks).most : all.blocks / items;
  }
  // Whether one warp group computes.
  bool is_few() const { return kernel_.tile.warps() == 4; }
  // What a single turn of so many parts takes besides, where one warp group computes: blocks are
  // whole, and parts are stored and merged. Round trips to memory take as long as some keys of 128
  // columns. (Of several turns others store meanwhile.)
  double storing(std::int64_t count, const Listed& all) const {
    if (!is_few()) return 0;
    const Tile& tile = kernel_.tile;
    const auto parts = static_cast<double>(count);
    const double blocks = one_turn_of(all) / parts;
    const auto width = static_cast<double>(tile.keys * (tile.depth + tile.width)) / 256;
    const double merged = count == 1 ? 0 : (kKeysOfStoring + kKeysOfMerging * parts) / width;
    return std::ceil(blocks) - blocks + merged;
  }
  // Blocks whose time passes between a part and the next one.
  double between() const {
    if (kernel_.tile.warps() > 4) return kBetweenMany;
    return read_page_of(attention_, kernel_.tile, "k") > 0 ? kBetweenInPages : kBetweenFew;
  }
  bool has_lengths() const { return attention_.lengths_q || attention_.lengths_kv; }
  target::Deadline* deadline() const { return context_.deadline.get(); }
  double multiprocessors() const { return static_cast<double>(context_.gpu.multiprocessors); }

  // Units of a section.
  std::int64_t section() const {
    const std::int64_t all = kernel_.units(dims_) * dims_[Dim::B];
    std::int64_t longest = 0;
    for (const TileList& list : kernel_.blocks.lists) longest = std::max(longest, list.blocks);
    const double least = kLongestOfSection * static_cast<double>(longest) * multiprocessors();
    const double of_unit = kernel_.blocks.blocks / static_cast<double>(all);
    std::int64_t units = std::max<std::int64_t>(
        1, std::min(kHeadsOfSection / kernel_.tile.pack, kBytesOfSection / bytes_of_unit()));
    while (units < all && static_cast<double>(units) * of_unit < least) units *= 2;
    const auto at_once = static_cast<double>(kernel_.tile.resident) * multiprocessors();
    return even_section(all, units, static_cast<double>(longest) * at_once / of_unit);
  }
  // At most so many of all units, so that the last section has `least` of them, or lacks few: its
  // longest tile runs alone else.
  static std::int64_t even_section(std::int64_t all, std::int64_t most, double least) {
    const auto lacking = [&](std::int64_t units) {
      const std::int64_t rest = all % units == 0 ? units : all % units;
      return std::max(0.0, least - static_cast<double>(rest));
    };
    std::int64_t best = most;
    for (std::int64_t units = most; units > most / 2 && units < all; --units) {
      if (lacking(units) < lacking(best)) best = units;
    }
    return best;
  }
  // Bytes of a unit's share of the keys and values that it reads.
  std::int64_t bytes_of_unit() const {
    const std::int64_t row = columns_of_key() * kernel_.tile.element;
    const std::int64_t units_of_key = ceil_div(dims_[Dim::Hq] / dims_[Dim::Hkv], kernel_.tile.pack);
    return std::max<std::int64_t>(1, dims_[Dim::Skv] * row / units_of_key);
  }

  static std::int64_t widest_part(const Tile& tile) {
    return tile.keys <= kKeysOfWiderParts ? kMostWidth : kWidestPart;
  }

  // For short sequences of many batches, and for tables that these have in common.
  std::vector<Tile> tiles_that_walk() const {
    constexpr std::int64_t kMostShort = 64, kMostColumns = 64;  // keys; Dqk, Dv
    const bool plain = !attention_.quantize && !attention_.cache && !attention_.values_of_keys &&
                       !form_.chosen && page_of(attention_, "k") == 0 &&
                       page_of(attention_, "v") == 0 && !has_bound_strides();
    if (!context_.rewrites.short_forms || !plain || dims_[Dim::B] == 1 ||
        dims_[Dim::Hq] != dims_[Dim::Hkv] || dims_[Dim::Dqk] > kMostColumns ||
        dims_[Dim::Dv] > kMostColumns || !check_of_warps(attention_, context_).ok())
      return {};
    std::optional<Table> table = expressions_of(attention_, true, true, kAlignedForPairs).table;
    if (table && (table->batches > 1 || table->element != 2)) table.reset();
    if (!table && dims_[Dim::Skv] > kMostShort) return {};
    return walking_tiles(attention_, table,
                         limit(target::Capability::shared_bytes_of_block, context_));
  }

  bool has_bound_strides() const {
    return std::ranges::any_of(std::to_array({"q", "k", "v", "o"}), [&](const char* name) {
      return layout_of(attention_, name).bound_strides;
    });
  }

  std::vector<Tile> other_tiles(const Expressions& expressions) const {
    if (has_kernels_of_warps(context_)) {
      return tiles_of_warps(attention_, mask_axes_.head,
                            limit(target::Capability::shared_bytes_of_block, context_));
    }
    // Threads that widen keys copy no table.
    const bool widens = attention_.cache || has_formatted_rows(attention_, "k");
    std::vector<Tile> all =
        tiles_for(attention_, mask_axes_.head, widens ? std::nullopt : expressions.table);
    if (masks_read_inputs(attention_) && dims_[Dim::Skv] < kKeysOfLongLists) {
      std::erase_if(all, [](const Tile& tile) {
        const bool wide = tile.element == 1 && tile.keys > kBlockOfShortLists;
        return tile.groups == kGroupsOfLongLists || wide;
      });
    }
    // How many keys a tile sees is not known where inputs decide; and threads that copy rows, or
    // random numbers, leave no registers for many.
    const bool may_fit = !masks_read_inputs(attention_) && !has_lengths() && !serves() &&
                         !gathers() && !attention_.is_random();
    std::erase_if(all, [&](const Tile& tile) {
      return (tile.keys > kMostGathered && gathers()) || (tile.groups == 3 && serves()) ||
             (tile.use == TileUse::fitting && !may_fit) || lacks_registers(tile, expressions);
    });
    const auto grid = grid_of(attention_);
    if (!grid || expressions.table || attention_.quantize || attention_.cache) return all;
    for (std::size_t i = 0, plain = all.size(); i < plain; ++i) {
      if (all[i].use == TileUse::fitting) continue;
      std::ranges::copy(patch_tiles(attention_, *grid, all[i]), std::back_inserter(all));
    }
    return all;
  }

  // Whether three warp groups with tiles of D 64 have no registers for random numbers, or, with the
  // most keys, for a table or for rows that are looked up.
  bool lacks_registers(const Tile& tile, const Expressions& expressions) const {
    const bool is_narrow = tile.depth > kPanel / 2 && tile.depth <= kPanel;
    if (tile.groups != 3 || tile.element != 2 || !is_narrow) return false;
    return attention_.is_random() || (tile.keys >= 128 && (expressions.table || gathers()));
  }

  // Whether keys or values are copied row by row.
  bool gathers() const {
    return std::ranges::any_of(std::to_array({"k", "v"}), [&](const char* name) {
      return read_page_of(attention_, {}, name) % kCell != 0;
    });
  }

  // The kernel of a tile. Where inputs decide what masks show, it computes the blocks of a band, or
  // the GPU makes lists, unless these take too much memory: then with those that are known now.
  Result<Kernel> listed(const Tile& tile) const {
    Kernel kernel;
    kernel.tile = tile;
    if (may_be_scheduled(tile)) {
      ATTN_ASSIGN(kernel.blocks, key_blocks(attention_, {}, tile, deadline()));
      kernel.workers = static_cast<std::int64_t>(context_.gpu.multiprocessors);
      if (schedule_sizes(dims_, kernel).fit()) {
        kernel.band = band_;
        return kernel;
      }
      kernel.workers = 0;
    }
    if (masks_read_inputs(attention_)) {
      ATTN_ASSIGN(kernel.blocks, key_blocks(attention_, {}, tile, deadline()));
      if (kernel.blocks.masked && !tile.patch) kernel.band = band_;
      if (kernel.band || tile.walks) return kernel;
      kernel.blocks.axes = mask_axes_;
      kernel.makes_lists = kernel.blocks.masked && kernel.made_lists(dims_).fit();
      if (kernel.makes_lists) return kernel;
    }
    ATTN_ASSIGN(kernel.blocks, key_blocks(attention_, mask_axes_, tile, deadline()));
    return kernel;
  }

  // Whether a schedule can say what blocks of threads compute: blocks of tiles follow from lengths,
  // alike for all heads.
  bool may_be_scheduled() const {
    return has_lengths() && dims_[Dim::B] > 1 && band_ && !mask_axes_.head && !attention_.quantize;
  }
  // Threads that copy for three warp groups have too few registers, and parts of a tile must be
  // merged.
  bool may_be_scheduled(const Tile& tile) const {
    return may_be_scheduled() && tile.groups < 3 && !tile.patch && !tile.of_warps &&
           tile.share() <= widest_part(tile);
  }
  // Whether work may differ much between batches of one plan, as those of a server.
  bool serves() const {
    return may_be_scheduled() && (layout_of(attention_, "q").kind == ir::LayoutKind::thd ||
                                  page_of(attention_, "k") > 0 || masks_read_inputs(attention_));
  }

  Coverage coverage() const {
    const Tile& tile = kernel_.tile;
    Coverage coverage{.what = fmt::format("tiles of {} rows and blocks of {} keys",
                                          tile.rows_of_head(), tile.keys),
                      .view = whole_view(attention_),
                      .attention = attention_,
                      .rows = tile.rows_of_head(),
                      .columns = tile.keys,
                      .cell = tile.patch ? kPatchWidth : tile.cell,
                      .patch = tile.patch};
    // Lengths end lists, too.
    if (!kernel_.depends_on_inputs() && !has_lengths()) coverage.lists = kernel_.blocks;
    if (tile.patch) {
      coverage.what = fmt::format("tiles of {} x {} rows and blocks of {} x {} keys of the grid",
                                  tile.patch->width, tile.patch->height, kPatchWidth, kPatchHeight);
    }
    if (kernel_.parts > 1) coverage.what += fmt::format(", in {} parts of the keys", kernel_.parts);
    return coverage;
  }

  // The work of one list of tiles that is computed so many times.
  static Listed listed(const KeyBlocks& blocks) {
    Listed all;
    for (const TileList& list : blocks.lists) {
      all.blocks += static_cast<double>(list.blocks);
      all.most = std::max(all.most, static_cast<double>(list.blocks));
      for (std::int64_t i = list.first; i < list.first + list.runs; ++i) {
        const KeyRun& run = blocks.runs[static_cast<std::size_t>(i)];
        if (run.masked) all.masked += static_cast<double>(run.blocks);
      }
    }
    const double times = all.blocks > 0 ? blocks.blocks / all.blocks : 0;
    all.blocks *= times, all.masked *= times;
    return all;
  }

  // The work of batches of such lengths, whose lists are those of one batch without lengths.
  Listed listed(const BatchesOfLength& length) const {
    if (length.rows == 0 || length.keys == 0) return {};
    const ir::Attention alone = of_length(attention_, length);
    const bool by_inputs = masks_read_inputs(alone);
    const Result<KeyBlocks> blocks =
        key_blocks(alone, by_inputs ? masks::Axes() : mask_axes_, kernel_.tile, deadline());
    if (!blocks.ok()) return listed(kernel_.blocks);  // of a build that is given up
    Listed all = listed(*blocks);
    all.blocks *= length.batches, all.masked *= length.batches;
    return all;
  }
  Listed expected(const BatchesOfLength& length) const {
    return has_lengths() ? listed(length) : listed(kernel_.blocks);
  }
  // The same of all batches.
  Listed expected() const {
    Listed all;
    for (const BatchesOfLength& length : expected_lengths(attention_)) {
      const Listed some = expected(length);
      all.blocks += some.blocks, all.masked += some.masked;
      all.most = std::max(all.most, some.most);
    }
    all.last = all.most * share_of_last_batch(attention_);
    return all;
  }

  // A schedule of packed rows has no tiles past their end.
  double expected_tiles() const {
    const bool packed = layout_of(attention_, "o").kind == ir::LayoutKind::thd;
    if (!kernel_.is_scheduled() || !packed) return static_cast<double>(kernel_.items(dims_));
    double tiles = 0;
    for (const BatchesOfLength& length : expected_lengths(attention_)) {
      const std::int64_t of_batch = ceil_div(length.rows, kernel_.tile.rows_of_head());
      tiles += length.batches * static_cast<double>(of_batch * kernel_.units(dims_));
    }
    return tiles;
  }

  NativeWork work_of_kernel() const {
    const Tile& tile = kernel_.tile;
    const auto of_block = static_cast<double>(tile.rows() * tile.keys);
    NativeWork work{.rate = tile.rate};
    work.rows = static_cast<double>(tile.rows());
    work.queries = static_cast<double>(tile.rows_of_head());
    work.keys = static_cast<double>(tile.keys);
    work.width = static_cast<double>(tile.depth + tile.width);
    work.tiles = expected_tiles();
    work.splits = static_cast<double>(kernel_.parts);
    work.groups = static_cast<double>(tile.groups);
    work.of_warps = tile.of_warps;
    work.scheduled = kernel_.is_scheduled();
    if (kernel_.parts > 1) {
      work.merging = work.tiles * static_cast<double>(tile.warps());
      work.merged = static_cast<double>(4 * kernel_.part_elements(dims_)) / work.merging;
    }
    for (const BatchesOfLength& length : expected_lengths(attention_)) {
      const Listed all = expected(length);
      work.scores += all.blocks * of_block;
      work.masked += all.masked * of_block;
      work.most = std::max(work.most, all.most * of_block);
      add_bytes(all.blocks, length.batches * static_cast<double>(length.keys), work);
    }
    work.last = work.most * share_of_last_batch(attention_);
    const bool by_band = kernel_.band && !kernel_.band->in_doubt && reads_more_than_lengths();
    work.at_most = kernel_.makes_lists || by_band;
    if (kernel_.makes_lists) work.lists = work_of(kernel_.made_lists(dims_), attention_);
    if (is_copied_before(attention_, tile)) work.moved = bytes_of_transposing(attention_);
    return work;
  }

  // Whether masks depend on inputs also where lengths are known.
  bool reads_more_than_lengths() const {
    return !has_lengths() ||
           masks_read_inputs(of_length(attention_, expected_lengths(attention_).front()));
  }

  // The lines of the L2 cache that copies of a row touch, a panel of 128 bytes after another:
  // rows that are no multiple of a line begin anywhere in one.
  static double line_bytes(std::int64_t row) {
    constexpr std::int64_t kLine = 128;
    const std::int64_t begins = std::gcd(row, kLine);
    std::int64_t bytes = 0;
    for (std::int64_t left = row; left > 0; left -= kLine) {
      bytes += std::min(left, kLine) + kLine - begins;
    }
    return static_cast<double>(bytes);
  }

  // Columns of k and v in memory, for each key.
  std::int64_t columns_of_key() const {
    return dims_[Dim::Dqk] + (attention_.values_of_keys ? 0 : dims_[Dim::Dv]);
  }

  // The work of so many blocks, of batches with so many keys.
  void add_bytes(double blocks, double keys, NativeWork& work) const {
    const Tile& tile = kernel_.tile;
    const double rows = blocks * static_cast<double>(tile.keys);
    const std::int64_t of_key = bytes_of_row(attention_, "k");
    const std::int64_t of_value = attention_.values_of_keys ? 0 : bytes_of_row(attention_, "v");
    const auto of_row = static_cast<double>(of_key + of_value);
    const double of_lines = line_bytes(of_key) + (of_value == 0 ? 0 : line_bytes(of_value));
    const auto sharing = static_cast<double>(ceil_div(dims_[Dim::Hq] / dims_[Dim::Hkv], tile.pack));
    work.copied += rows * of_lines;
    work.read += std::min(rows / sharing, keys * static_cast<double>(dims_[Dim::Hkv])) * of_row;
    for (const char* name : {"k", "v"}) {
      const std::int64_t page = read_page_of(attention_, tile, name);
      const bool is_copied = !tile.values_of_keys || name != std::string_view("v");
      // Widened rows are copied ahead, wherever they are.
      if (page == 0 || tile.wideners > 0 || !is_copied) continue;
      const auto pieces = rows / static_cast<double>(kernel_.piece(page));
      if (tile.of_warps)
        work.gathered += rows;
      else
        (kernel_.gathers(page) ? work.gathered : work.pieces) += pieces;
    }
  }

  const ir::Attention& whole_;  // whose tensors are bound
  const Form& form_;
  const ir::Attention& attention_;  // that the kernel computes
  const ir::Dims& dims_;
  const masks::Axes mask_axes_;
  const target::Context& context_;
  const std::optional<ClosedBand> band_;  // of columns, if inputs decide what masks show
  std::vector<Choice> choices_;           // the best first
  std::vector<Tile> spares_;              // that were not listed
  Status refusal_ = unsupported(attention_.pos, "no tile of attnc's kernel fits these sizes");
  Kernel kernel_;
};

}  // namespace native

Status check_native(const ir::Attention& attention, const target::Context& of_target) {
  const target::Context context = native::context_of_kernels(attention, of_target);
  const std::optional<native::Skeleton> skeleton = native::skeleton_of(context);
  if (!skeleton) {
    return unsupported(
        attention.pos,
        fmt::format("attnc's own engine is for compute capability 8.0 and later, not {}.{}",
                    context.gpu.sm / 10, context.gpu.sm % 10));
  }
  if (skeleton == native::Skeleton::warps)
    ATTN_RETURN_IF_ERROR(native::check_of_warps(attention, context));
  if (context.backward()) {
    if (attention.cache) ATTN_RETURN_IF_ERROR(check_not_8_bits(attention, "attnc's backward"));
    const bool of_warps = skeleton == native::Skeleton::warps;
    if (!attention.epilogue) return native::check_backward(attention, of_warps);
    ATTN_RETURN_IF_ERROR(native::check_clauses(attention));
    ATTN_RETURN_IF_ERROR(check_epilogue_gradients(attention));
    return native::check_backward(ir::without_epilogue(attention), of_warps);
  }
  ATTN_RETURN_IF_ERROR(check_forward(attention));
  ATTN_RETURN_IF_ERROR(native::check_clauses(attention));
  ATTN_RETURN_IF_ERROR(native::check_chosen(attention, skeleton == native::Skeleton::warps));
  if (skeleton == native::Skeleton::warps)
    return attention.cache ? native::check_cache(attention, true) : Status();
  using native::kMostDepthOf8Bits;
  const bool wide = !attention.quantize;
  const std::string_view direction = wide ? "forward" : "8-bit forward";
  ATTN_RETURN_IF_ERROR(native::check_depth(
      attention, ir::Dim::Dqk, wide ? native::kMostDepth : kMostDepthOf8Bits, direction));
  ATTN_RETURN_IF_ERROR(native::check_depth(
      attention, ir::Dim::Dv, wide ? native::kMostWidth : kMostDepthOf8Bits, direction));
  if (attention.quantize) return native::check_quantized(attention);
  if (attention.cache) ATTN_RETURN_IF_ERROR(native::check_cache(attention, false));
  for (const char* name : {"q", "k", "v", "o"}) {
    ATTN_RETURN_IF_ERROR(native::check_layout(attention, name));
  }
  return {};
}

struct NativePrograms::Forms {
  Forms(const ir::Attention& attention, const masks::Axes& mask_axes,
        const target::Context& context)
      : whole(native::whole_form(native::with_reduced_strength(attention))),
        part(attention.epilogue || attention.gather || attention.cache
                 ? std::nullopt
                 : native::classes_of(whole.attention, context)),
        classes(native::readable_classes(whole.attention, part, {"q", "k", "v"})),
        of_whole(attention, whole, attention.gather ? masks::Axes() : mask_axes, context) {
    if (!classes) return;
    const masks::Axes axes = masks::analyzed(classes->attention, context)->axes();
    of_classes.emplace(whole.attention, *classes, masks::varying(axes, classes->attention.dims),
                       context);
  }

  const native::Form whole;
  const std::optional<Part> part;
  const std::optional<native::Form> classes;
  native::Native of_whole;
  std::optional<native::Native> of_classes{};
};

NativePrograms::NativePrograms(ir::Attention attention, const masks::Axes& mask_axes,
                               const target::Context& context)
    : context_(native::context_of_kernels(attention, context)),
      for_rows_(context_.rewrites.warp_groups != context.rewrites.warp_groups),
      attention_(native::with_scales_in_expressions(std::move(attention),
                                                    native::has_kernels_of_warps(context_))),
      mask_axes_(mask_axes) {}

NativePrograms::~NativePrograms() = default;

// Kernels of one launch, or those of several, the cheaper ones first.
Result<NativeProgram> NativePrograms::make_inner_backward(const ir::Attention& attention,
                                                          std::size_t refused,
                                                          const Prediction& predicted) {
  const std::size_t count = native::count_of_short_tiles(attention, context_);
  if (count > 0 && !short_first_) {
    const auto of_one = native::lower_short_backward(attention, mask_axes_, context_, 0);
    const auto of_several = native::lower_backward(attention, mask_axes_, context_, 0);
    short_first_ =
        !of_several.ok() ||
        (of_one.ok() && (!predicted || predicted(of_one->work) <= predicted(of_several->work)));
  }
  if (count > 0 && *short_first_) {
    if (refused < count)
      return native::lower_short_backward(attention, mask_axes_, context_, refused);
    return native::lower_backward(attention, mask_axes_, context_, refused - count);
  }
  Result<NativeProgram> made = native::lower_backward(attention, mask_axes_, context_, refused);
  return made;
}

// An epilogue's step comes before, and with gradients of its tensors alone there is no more.
Result<NativeProgram> NativePrograms::make_backward(std::size_t refused,
                                                    const Prediction& predicted) {
  if (!attention_.epilogue) return make_inner_backward(attention_, refused, predicted);
  NativeProgram made;
  if (has_inner_gradients(attention_)) {
    ATTN_ASSIGN(made, make_inner_backward(ir::without_epilogue(attention_), refused, predicted));
  } else if (refused > 0) {
    return unsupported(attention_.pos, "no other program makes these gradients");
  }
  made.program = through_epilogue(attention_, std::move(made.program));
  ATTN_RETURN_IF_ERROR(codegen::check_epilogue(attention_, made.program));
  const ir::Dims& dims = attention_.dims;
  made.work.moved += static_cast<double>(8 * dims[ir::Dim::B] * dims[ir::Dim::Hq] *
                                         dims[ir::Dim::Sq] * dims[ir::Dim::Dv]);
  ATTN_RETURN_IF_ERROR(check_program(attention_, made.program));
  return made;
}

Result<NativeProgram> NativePrograms::make(std::size_t refused, const Prediction& predicted) {
  Result<NativeProgram> made = make_program(refused, predicted);
  if (made.ok() && for_rows_) {
    made->parts.emplace_back(
        "all, by kernels of warps: the tensor memory accelerator cannot read the rows");
  }
  return made;
}

Result<NativeProgram> NativePrograms::make_program(std::size_t refused,
                                                   const Prediction& predicted) {
  ATTN_RETURN_IF_ERROR(check_native(attention_, context_));
  if (context_.backward()) return make_backward(refused, predicted);
  if (!forms_) forms_ = std::make_unique<Forms>(attention_, mask_axes_, context_);
  std::size_t of_whole = 0, of_classes = 0;  // refused
  while (true) {
    const Result<double> whole = forms_->of_whole.work(of_whole);
    const auto classes = forms_->of_classes ? forms_->of_classes->work(of_classes) : whole;
    const bool fewer = forms_->of_classes && classes.ok() && (!whole.ok() || *classes < *whole);
    if (!fewer && !whole.ok()) return whole.error();
    if (of_whole + of_classes < refused) {
      ++(fewer ? of_classes : of_whole);
      continue;
    }
    if (!fewer) return forms_->of_whole.make(of_whole);
    Result<NativeProgram> made = forms_->of_classes->make(of_classes);
    if (!made.ok()) return made;
    made->parts = {to_text(*forms_->part)};
    made->coverage->view = forms_->part->view;
    made->coverage->attention = forms_->part->attention;
    return made;
  }
}

}  // namespace attn::engines
