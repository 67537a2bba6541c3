// The kernel that makes schedules (schedule.cuh), a block of kScheduleThreads threads, each of
// which has a tile at a time:
//
//   tiles    of all batches, by their rows
//   blocks   of each tile, and so what it costs: kBetween blocks more than it has
//   way      whether tiles are taken in turns, whole or in parts, or are on the line
//   notes    of each tile: what the tiles before have on the line, of slots, and of its class
//   items    of each tile of all units, and spans
//
// Tiles in turns balance themselves, and those of all heads of a batch are side by side, so that
// memory is read in order; but they end together only where there are many, or as many as fit. The
// line ends together always, but has two parts of tiles in each span. In turns full tiles are
// before those with few rows, and each kind has the longest first: measured with few rows mixed
// in, a chunk of a prompt beside 255 decodes takes 4 % longer.
#pragma once

#include "attn/bands.cuh"
#include "attn/block_scan.cuh"
#include "attn/schedule.cuh"
#include "attn/schedule_prefix.cuh"
#include "attn/which.cuh"

namespace kernels {

constexpr int kScheduleThreads = 512;

template <class C, class E>
struct ScheduleMaker {
  // Classes of tiles in turns: with few rows or full, and by the length of their parts.
  static constexpr int kSizes = C::kTiles == 1 ? 3 : 6, kKinds = C::kTiles == 1 ? 1 : 2;
  // What is summed of the tiles before.
  enum Column { kLine, kOnLine, kParts, kFirstClass, kColumns = kFirstClass + kSizes * kKinds };
  using Scan = BlockScan<kScheduleThreads / 32, kColumns>;

  // Notes of tiles: the sums of kLine and kParts, kOnLine or that of its class, and its blocks.
  enum Note { kNoteOfLine, kNoteOfParts, kNoteOfPlace, kNoteOfBlocks, kNotes };
  static constexpr int kNoted = Schedule<C>::kTilesNoted;
  static constexpr int kMostNear = C::kBatches > 2048 ? 1024 : 2048;  // that shared memory has
  static constexpr int kNear = kNoted < kMostNear ? kNoted : kMostNear;
  // A place on the line of all units.
  static constexpr long long kMostBlocks = C::kColumns / C::kKeys + 2 + C::kBetween;
  using Place =
      typename Which<(kMostBlocks * kNoted * C::kUnits < (1ll << 31)), int, long long>::Type;

  struct Shared {
    typename Scan::Shared scan;
    int notes[kNotes * kNear];
    int first_tile[C::kThdO ? C::kBatches + 1 : 1];
    int cost, longest;  // of all tiles of a unit, and of one
    int part;           // part_of_one_turn
    int flags;
  };

  const E& expressions;
  const Schedule<C> schedule;
  const Slots<C> slots;
  const ScheduleOptions options;
  Shared& shared;
  const int* const row_starts;  // of packed sequences, with kPrefix
  const Scan scan{shared.scan};

  // What all threads know.
  int used = 0, tiles = 0, workers = 0;  // sequences, ..
  int longest_whole = 0;                 // blocks of a tile in turns that is not divided
  int of_part = 0;                       // blocks of the parts of others, but for their last ones
  int on_line = 0;                       // cost above which a tile is on the line
  Place line = 0, span = 1;
  SchedulePrefix<C> prefix{};

  __device__ void run() {
    begin_next_launch();
    if (threadIdx.x == 0) shared.cost = shared.longest = shared.flags = 0, shared.part = kNever;
    count_tiles();
    if constexpr (C::kPrefix) begin_prefix();
    measure_tiles();
    choose_way();
    note_tiles();
    if ((long long)scan.all(kParts) * C::kUnits > slots_given() - prefix.items()) leave_whole();
    find_span();
    write_spans();
    write_items();
    if constexpr (C::kPrefix) prefix.write_items(schedule, slots);
    write_header();
  }

 private:
  static constexpr int kNever = 1 << 30;

  template <typename T>
  static __device__ T ceil_div(T x, T y) {
    return (x + y - 1) / y;
  }
  // A quotient of blocks. No quotient of numbers below 2^21 and a half is so close to a whole
  // number that floats, which are wrong by two units in the last place at most, are on its other
  // side.
  static __device__ int quotient(int x, int y) {
    if constexpr (kMostBlocks >= (1 << 18)) return x / y;
    return (int)__fdividef(x + 0.5f, (float)y);
  }
  static __device__ int quotient_up(int x, int y) { return quotient(x + y - 1, y); }
  __device__ int* notes(Note note) const {
    return kNear == kNoted || tiles <= kNear ? shared.notes + note * kNear : schedule.notes(note);
  }

  __device__ int sequences() const {
    const int given = options.sequences_at != nullptr ? *options.sequences_at
                      : options.sequences > 0         ? options.sequences - 1
                                                      : C::kBatches;
    return ::max(0, ::min(given, C::kBatches));
  }
  __device__ int rows_of(int b) const { return ::max(0, expressions.queries(b)); }

  // Rows past the end are stored, too, but where o is packed.
  __device__ void count_tiles() {
    // The first lengths are on their way together with their number, unless that is in memory.
    const int known = options.sequences_at != nullptr ? 0 : sequences();
    bool is_beyond = (int)threadIdx.x < known && expressions.beyond(threadIdx.x);
    used = sequences();
    const int wanted = prefix.wanted(options);
    scan.begin();
#pragma unroll 1
    for (int from = 0; from < used; from += kScheduleThreads) {
      const int b = from + threadIdx.x;
      if (from > 0 || b >= known) is_beyond = b < used && expressions.beyond(b);
      if (b < used && is_beyond) atomicOr(&shared.flags, attn::plan::kScheduleTooLong);
      if (C::kPrefix && wanted > 0 && b < used && !prefix.are_seen(expressions, b, wanted))
        atomicOr(&shared.flags, attn::plan::kScheduleNotShared);
      if constexpr (C::kThdO) {
        int own[kColumns] = {b < used ? ceil_div(rows_of(b), C::kRowsOfTile) : 0};
        scan.add(own);
        if (b < used) shared.first_tile[b] = own[0];
      }
    }
    tiles = used * C::kTiles;
    if constexpr (C::kThdO) {
      tiles = scan.all(0);
      for (int b = used + threadIdx.x; b <= C::kBatches; b += kScheduleThreads)
        shared.first_tile[b] = tiles;
    }
    __syncthreads();
  }

  // Sequences read the keys themselves if some row does not see them, or slots are too few.
  __device__ void begin_prefix() {
    const int wanted = prefix.wanted(options), flags = shared.flags;
    __syncthreads();
    if (wanted == 0) return;
    const int rows = row_starts[used] - row_starts[0];
    const bool begun = flags == 0 && prefix.begin(wanted, rows, slots_given());
    if (!begun && threadIdx.x == 0) shared.flags |= attn::plan::kScheduleNotShared;
  }

  // A tile's batch, and its number there.
  struct OfBatch {
    int b, number;
  };
  __device__ OfBatch of_batch(int tile) const {
    int b = tile / C::kTiles, number = tile % C::kTiles, count = C::kTiles;
    if constexpr (C::kThdO) {
      b = 0;  // the last one that begins there or before
      for (int end = C::kBatches; end - b > 1;) {
        const int middle = (b + end) / 2;
        (shared.first_tile[middle] <= tile ? b : end) = middle;
      }
      number = tile - shared.first_tile[b], count = shared.first_tile[b + 1] - shared.first_tile[b];
    }
    return {b, C::kLastTilesFirst ? count - 1 - number : number};
  }

  __device__ int blocks_of(const OfBatch& of) const {
    const int first = of.number * C::kRowsOfTile;
    const int end = ::min(first + C::kRowsOfTile, rows_of(of.b));
    if (first >= end) return 0;
    const Band band = expressions.columns(of.b, 0, {first, end - 1});
    return blocks_of_band<C::kKeys, C::kBandStart>(band, expressions.keys(of.b)).all -
           prefix.blocks;
  }
  // An item without blocks stores rows, which takes about as long as a block.
  static __device__ int cost_of(int blocks) { return C::kBetween + ::max(blocks, 1); }

  __device__ void measure_tiles() {
    int cost = 0, longest = 0;
#pragma unroll 1
    for (int tile = threadIdx.x; tile < tiles; tile += kScheduleThreads) {
      const int blocks = blocks_of(of_batch(tile));
      notes(kNoteOfBlocks)[tile] = blocks;
      cost += cost_of(blocks), longest = ::max(longest, cost_of(blocks));
    }
    cost = __reduce_add_sync(~0u, cost);
    longest = __reduce_max_sync(~0u, longest);
    if (threadIdx.x % 32 == 0) {
      atomicAdd(&shared.cost, cost);
      atomicMax(&shared.longest, longest);
    }
    __syncthreads();
  }

  // Times are in blocks of keys, until all blocks of threads have ended.
  struct Way {
    int time, parts;
  };
  static __device__ int merging(int parts) { return parts > 1 ? parts * C::kMerging / 4 : 0; }

  // The best number of parts of each tile, if tiles are alike and are taken in turns: each lane
  // knows one. To store a part takes about as long as what is between items.
  __device__ Way equal_parts() const {
    const int parts = threadIdx.x % 32 + 1, blocks = shared.longest - C::kBetween;
    const int turns = ceil_div(tiles * C::kUnits * parts, workers);
    const int of_each = cost_of(quotient_up(blocks, parts)) + (parts > 1 ? C::kBetween : 0);
    const long long time = (long long)turns * of_each + merging(parts);
    const bool may = (options.most_parts == 0 || parts <= options.most_parts) &&
                     (parts == 1 || tiles * C::kUnits * parts <= slots_given());
    constexpr int kPartBits = 6;
    constexpr long long kMost = (1ll << (31 - kPartBits)) - 1;
    const int rated = may ? (int)::min(time, kMost) : (int)kMost;
    const int best = __reduce_min_sync(~0u, rated << kPartBits | parts);
    return {best >> kPartBits, best & ((1 << kPartBits) - 1)};
  }
  // The blocks of a part, if tiles have so few parts together that each block of threads takes one:
  // the least of what is tried, from a fair share on. kNever: of nothing that is tried.
  __device__ int part_of_one_turn(Place share) {
    constexpr int kTried = 32, kSteps = 16;  // of a share
    if (tiles * C::kUnits > workers) return kNever;
#pragma unroll 1
    for (int tried = threadIdx.x / 32; tried < kTried; tried += kScheduleThreads / 32) {
      const int of_part = (int)(share * (kSteps + tried) / kSteps);
      int parts = 0;
      for (int tile = threadIdx.x % 32; tile < tiles; tile += 32)
        parts += parts_of(notes(kNoteOfBlocks)[tile], of_part);
      parts = __reduce_add_sync(~0u, parts);
      if (threadIdx.x % 32 == 0 && parts * C::kUnits <= workers) atomicMin(&shared.part, of_part);
    }
    __syncthreads();
    return options.most_parts == 0 ? shared.part : kNever;
  }
  __device__ long long time_of_one_turn(int of_part) const {
    return of_part == kNever
               ? kNever
               : of_part + 2 * C::kBetween + merging(ceil_div(shared.longest, of_part));
  }

  // Tiles that differ: the last ones that are taken are short.
  __device__ long long time_in_turns(Place share) const {
    return ::max((long long)shared.longest, (long long)share + shared.longest / 4);
  }
  // Spans have parts of two tiles each, and heads of a batch are not read side by side.
  __device__ long long time_of_line(Place share) const {
    return share + share / 16 + 4 * C::kBetween + merging((int)(shared.longest / share) + 1);
  }

  __device__ void choose_way() {
    workers = options.blocks > 0 && options.blocks < C::kWorkers ? options.blocks : C::kWorkers;
    longest_whole = of_part = on_line = kNever;
    if (prefix.blocks > 0) {
      const int part = prefix.divide(shared.cost, workers, most_parts(), slots_given());
      if (options.most_parts != 1) of_part = part, longest_whole = part + part / 2;
      return;
    }
    const Place share = (Place)shared.cost * C::kUnits / workers + 1;
    const bool alike = 4 * (long long)shared.cost > 3ll * shared.longest * tiles;
    if (options.split_keys > 0) {
      longest_whole = of_part = ::max(1, options.split_keys / C::kKeys);
      return;
    }
    if (options.most_parts == 1) return;
    const Way equal = equal_parts();
    const int part = part_of_one_turn(share);
    const long long line_or_turns = ::min(time_of_line(share), time_in_turns(share));
    if (time_of_one_turn(part) < ::min(line_or_turns, alike ? (long long)equal.time : kNever)) {
      longest_whole = of_part = part;
    } else if (alike && equal.time <= time_of_line(share)) {
      longest_whole = of_part = ceil_div(shared.longest - C::kBetween, equal.parts);
    } else if (share >= C::kLongShare) {
      of_part = ::max((int)(share / C::kTurnsOfShare), C::kLeastOfTurns);
      longest_whole = 2 * of_part;
    } else if (time_in_turns(share) > time_of_line(share)) {
      on_line = (int)(share / kShortOfShare);
    }
  }
  __device__ int most_parts() const {
    const int given = options.most_parts;
    return given > 0 ? ::min(given, (int)kSlotMask) : attn::plan::kScheduleMostParts;
  }

  // Tiles that take a smaller part of a share are in turns, after the line.
  static constexpr int kShortOfShare = 4;

  // Blocks of each part of a tile; twice as many, three times, .. if parts would be too many.
  __device__ int blocks_of_part(int blocks) const {
    if (blocks <= longest_whole) return ::max(blocks, 1);
    return of_part * quotient_up(quotient_up(blocks, of_part), most_parts());
  }

  __device__ int class_of(const OfBatch& of, int blocks_of_part) const {
    const int longest = ::min(longest_whole, shared.longest - C::kBetween);
    const int shorter = quotient(kSizes * (longest - blocks_of_part), ::max(longest, 1));
    const int size = ::max(0, ::min(shorter, kSizes - 1));
    const bool few =
        kKinds == 1 || 2 * (rows_of(of.b) - of.number * C::kRowsOfTile) < C::kRowsOfTile;
    return (few ? kSizes * (kKinds - 1) : 0) + size;
  }

  __device__ void note_tiles() {
    scan.begin();
#pragma unroll 1
    for (int from = 0; from < tiles; from += kScheduleThreads) {
      const int tile = from + threadIdx.x;
      int own[kColumns] = {}, place = kOnLine;
      if (tile < tiles) {
        const int blocks = notes(kNoteOfBlocks)[tile], cost = cost_of(blocks);
        if (cost > on_line) {
          own[kLine] = cost, own[kOnLine] = 1;
        } else {
          const int of_part = blocks_of_part(blocks), parts = parts_of(blocks, of_part);
          place = kFirstClass + class_of(of_batch(tile), of_part);
#pragma unroll
          for (int c = kFirstClass; c < kColumns; ++c) own[c] = c == place ? parts : 0;
          own[kParts] = parts > 1 ? parts : 0;
        }
      }
      scan.add(own);
      if (tile >= tiles) continue;
      notes(kNoteOfLine)[tile] = own[kLine], notes(kNoteOfParts)[tile] = own[kParts];
#pragma unroll
      for (int c = kOnLine; c < kColumns; ++c) {
        if (c == place) notes(kNoteOfPlace)[tile] = own[c];
      }
    }
    __syncthreads();
  }
  static __device__ int parts_of(int blocks, int of_part) {
    return quotient_up(::max(blocks, 1), of_part);
  }

  __device__ int slots_given() const { return options.slots > 0 ? options.slots : C::kSlots; }
  // Parts would have no slots.
  __device__ void leave_whole() {
    if (threadIdx.x == 0) shared.flags |= attn::plan::kScheduleTooManyParts;
    longest_whole = kNever;
    note_tiles();
  }

  // Spans are not so short that a tile has more parts than it may have.
  __device__ void find_span() {
    line = (Place)scan.all(kLine) * C::kUnits;
    span = ::max(ceil_div(line, (Place)workers), (Place)C::kLeastSpan);
    if (options.most_parts > 1)
      span = ::max(span, (Place)ceil_div(shared.longest, most_parts() - 1));
  }

  // The number of the first item in turns: those of the line have as many as tiles and spans
  // together.
  __device__ int first_in_turns() const {
    return line > 0 ? scan.all(kOnLine) * C::kUnits + workers : prefix.items();
  }
  __device__ int parts_in_turns() const {
    int parts = 0;
    for (int c = kFirstClass; c < kColumns; ++c) parts += scan.all(c);
    return parts;
  }

  // With no line, each block of threads has one item in turns alone, but with a prefix: blocks of
  // threads that do not run yet have none of its items then.
  __device__ void write_header() {
    if (threadIdx.x != 0) return;
    const int first = first_in_turns(), end = first + parts_in_turns() * C::kUnits;
    const int begin = prefix.blocks > 0 ? 0
                      : line > 0        ? first
                                        : workers,
              last = ::max(end - begin, 0) + workers - 1;
    schedule.header() = {begin, end, workers, shared.flags, 0, last, used, 2 * prefix.parts};
  }

  __device__ void write_spans() {
    const int end_of_turns = parts_in_turns() * C::kUnits;
    for (int i = threadIdx.x; i < C::kWorkers; i += kScheduleThreads) {
      Span own{0, 0};
      if (i < workers && line == 0 && prefix.blocks == 0) own = {i, ::min(i + 1, end_of_turns)};
      if (i < workers && i * span < line) own = span_of_line(i);
      schedule.span(i) = own;
    }
  }

  // A tile of the line: its number there, and the place of its first block.
  struct LineTile {
    int number;
    Place first_block;
  };
  __device__ LineTile tile_at(Place place) const {
    const Place of_unit = scan.all(kLine);
    const int unit = (int)(place / of_unit), within = (int)(place % of_unit);
    int low = 0;  // the last one that begins there or before
    for (int high = tiles; high - low > 1;) {
      const int middle = (low + high) / 2;
      (notes(kNoteOfLine)[middle] <= within ? low : high) = middle;
    }
    return {unit * scan.all(kOnLine) + notes(kNoteOfPlace)[low],
            unit * of_unit + notes(kNoteOfLine)[low] + C::kBetween};
  }
  // The part of a tile in span i is item `number of the tile + i`.
  __device__ Span span_of_line(int i) const {
    const Place begin = i * span, end = ::min(begin + span, line);
    const LineTile last = tile_at(end - 1);
    return {tile_at(begin).number + i, last.number + i + (last.first_block < end ? 1 : 0)};
  }

  // As many threads have a tile as there are for each, and each some of its units.
  __device__ void write_items() {
    const int of_tile = ::max(1, ::min(C::kUnits, kScheduleThreads / ::max(tiles, 1)));
#pragma unroll 1
    for (int i = threadIdx.x; i < tiles * of_tile; i += kScheduleThreads) {
      const int tile = i / of_tile, blocks = notes(kNoteOfBlocks)[tile];
      const OfBatch of = of_batch(tile);
      const ScheduledItem whole{of.b * C::kUnits, (unsigned)of.number, prefix.blocks, blocks};
      const Units units{i % of_tile, of_tile};
      if (cost_of(blocks) > on_line)
        write_parts_of_line(whole, units, tile);
      else
        write_parts_in_turns(whole, units, tile, of);
    }
  }
  // Every so many units, from the first on.
  struct Units {
    int first, apart;
  };

  // Slots of a tile begin at 2 begin + 1, and those of the next one, which begins in its last span
  // or later, behind them.
  __device__ void write_parts_of_line(const ScheduledItem& whole, const Units& units,
                                      int tile) const {
    const int place = notes(kNoteOfPlace)[tile], before = notes(kNoteOfLine)[tile] + C::kBetween;
    const int tiles_of_unit = scan.all(kOnLine), blocks = whole.blocks;
    const Place of_unit = scan.all(kLine);
#pragma unroll 1
    for (int unit = units.first; unit < C::kUnits; unit += units.apart) {
      const Place from = unit * of_unit + before;
      const int begin = (int)(from / span), last = (int)((from + ::max(blocks, 1) - 1) / span);
      for (int i = begin; i <= last; ++i) {
        ScheduledItem item = whole;
        item.unit += unit;
        item.first = i == begin ? 0 : (int)(i * span - from);
        item.blocks = (i == last ? blocks : (int)((i + 1) * span - from)) - item.first;
        if (last > begin) item.tile |= slots.open(begin + i + 1, 2 * begin + 1, last - begin + 1);
        schedule.item(unit * tiles_of_unit + place + i) = item;
      }
    }
  }

  // Where a part of a tile is among all parts of a unit: behind those of the classes before.
  __device__ int place_of(int tile, int of_class, int part) const {
    int own = notes(kNoteOfPlace)[tile] + part;
    for (int c = 0; c < kSizes * kKinds; ++c) own += c < of_class ? scan.all(kFirstClass + c) : 0;
    return own;
  }

  // Units are side by side, so that tiles find keys in the L2 cache, a section of them at a time.
  __device__ void write_parts_in_turns(const ScheduledItem& whole, const Units& units, int tile,
                                       const OfBatch& of) const {
    const int blocks = whole.blocks, of_part = blocks_of_part(blocks);
    const int parts = parts_of(blocks, of_part), place = place_of(tile, class_of(of, of_part), 0);
    const int first = first_in_turns(), in_turns = parts_in_turns();
    const int slots_of_unit = scan.all(kParts);
    const int slot_before = 1 + prefix.items() + notes(kNoteOfParts)[tile];
#pragma unroll 1
    for (int unit = units.first; unit < C::kUnits; unit += units.apart) {
      const int section = unit / C::kSection * C::kSection;
      const int side_by_side = ::min(C::kSection, C::kUnits - section);
      const int begin = first + section * in_turns + unit - section;
      const int slot = slot_before + unit * slots_of_unit;
      for (int i = 0; i < parts; ++i) {
        ScheduledItem item = whole;
        item.unit += unit;
        item.first += i * of_part;
        item.blocks = ::min(of_part, blocks - i * of_part);
        if (parts > 1) item.tile |= slots.open(slot + i, slot, parts);
        const int own = i == 0 ? place : place_of(tile, class_of(of, of_part), i);
        schedule.item(begin + side_by_side * own) = item;
      }
    }
  }
};

// The kernel, for one block of kScheduleThreads threads.
template <class C, class E>
ATTN_INLINE void make_schedule(const E& expressions, int* schedule, float* parts,
                               const int* options, const int* row_starts = nullptr) {
  using Maker = ScheduleMaker<C, E>;
  __shared__ typename Maker::Shared shared;
  Maker{expressions, {schedule}, {parts}, *reinterpret_cast<const ScheduleOptions*>(options),
        shared,      row_starts}
      .run();
}

}  // namespace kernels
