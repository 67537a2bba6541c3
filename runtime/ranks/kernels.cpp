#include "runtime/ranks/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace attn::ranks {
namespace {

static_assert(sizeof(RanksCopies) <= 4096 && sizeof(RanksMerge) <= 4096, "of a launch's arguments");

constexpr std::int64_t kMostVector = 16;

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

std::int64_t of_address(const void* address) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % kMostVector);
}

// The largest vector, in bytes, that all of these are multiples of.
std::int64_t vector_of(std::initializer_list<std::int64_t> multiples) {
  std::int64_t vector = kMostVector;
  for (const std::int64_t each : multiples) vector = std::gcd(vector, each);
  return vector;
}

// Joins what follows each other in both tensors: rows of one element to fewer rows of several, and
// heads to one.
Copy simplified(Copy copy) {
  constexpr std::int64_t kMostTogether = 64;
  if (copy.width == 1 && !copy.pairs && copy.from_strides.row == 1 && copy.to_strides.row == 1) {
    copy.width = std::gcd(copy.rows, kMostTogether);
    copy.rows /= copy.width;
    copy.from_strides.row = copy.to_strides.row = copy.width;
  }
  if (copy.heads > 1 && copy.from_strides.head == copy.width &&
      copy.to_strides.head == copy.width) {
    copy.width *= copy.heads;
    copy.heads = 1;
  }
  return copy;
}

RanksCopy resolved(const Copy& given, const Bases& bases) {
  const Copy copy = simplified(given);
  const std::int64_t size = copy.element_bytes;
  RanksCopy made{};
  made.from = bases.address(copy.from);
  made.to = bases.address(copy.to);
  if (copy.pairs) made.pairs = static_cast<const int*>(bases.address(copy.pairs));
  made.from_batch = copy.from_strides.batch * size;
  made.from_row = copy.from_strides.row * size;
  made.from_head = copy.from_strides.head * size;
  made.to_batch = copy.to_strides.batch * size;
  made.to_row = copy.to_strides.row * size;
  made.to_head = copy.to_strides.head * size;
  const bool batches = copy.batches > 1, heads = copy.heads > 1;
  const std::int64_t vector =
      vector_of({of_address(made.from), of_address(made.to), copy.width * size, made.from_row,
                 made.to_row, batches ? made.from_batch : 0, batches ? made.to_batch : 0,
                 heads ? made.from_head : 0, heads ? made.to_head : 0});
  made.rows = static_cast<int>(copy.rows);
  made.lines = static_cast<int>(copy.batches * copy.rows);
  made.heads = static_cast<int>(copy.heads);
  made.vectors = static_cast<int>(copy.width * size / vector);
  made.vector_bytes = static_cast<int>(vector);
  const std::int64_t units = std::int64_t{made.heads} * made.vectors;
  made.lines_of_block = static_cast<int>(std::max<std::int64_t>(1, kRanksCopyUnits / units));
  return made;
}

// Elements that a thread can read at once from all of the places.
std::int64_t elements_at_once(const Merge& merge, const RanksMerge& made, const Bases& bases) {
  std::int64_t elements = std::gcd(std::int64_t{8}, merge.width);
  const auto fit = [&](const MergePlace& place) {
    const Slot& values = place.slots[0];
    if (!values.at) return;
    const std::int64_t size = bytes_of(place.dtype);
    // f32 is read 4 elements at a time.
    const std::int64_t at = of_address(bases.address(values.at));
    const auto is_aligned = [&] {
      return at % std::min(kMostVector, elements * size) == 0 &&
             values.strides.row % elements == 0 &&
             (merge.batches == 1 || values.strides.batch % elements == 0) &&
             (place.heads.size() == 1 || values.strides.head % elements == 0);
    };
    while (elements > 1 && !is_aligned()) elements /= 2;
  };
  if (made.home.values.data != nullptr) fit(merge.home);
  for (const MergePlace& place : merge.places) fit(place);
  return elements;
}

int type_of(DType dtype) {
  if (dtype == DType::f16) return kRanksF16;
  return dtype == DType::bf16 ? kRanksBF16 : kRanksF32;
}

int power_of_two_from(std::int64_t count) {
  constexpr int kWarp = 32;
  int power = 1;
  while (power < count && power < kWarp) power *= 2;
  return power;
}

std::int64_t blocks_for(std::int64_t threads) {
  return (threads + kRanksThreads - 1) / kRanksThreads;
}

}  // namespace

void* Bases::address(const Address& at) const {
  switch (at.in) {
    case Address::In::nothing: return nullptr;
    case Address::In::memory: return static_cast<std::byte*>(memory) + at.offset;
    case Address::In::table: return static_cast<std::byte*>(table) + at.offset;
    case Address::In::home: break;
  }
  return static_cast<std::byte*>(home[at.tensor]) + at.offset;
}

std::vector<CopyLaunch> launches_of(std::span<const Copy> copies, const Bases& bases) {
  std::vector<CopyLaunch> launches;
  for (const Copy& copy : copies) {
    if (copy.rows * copy.batches * copy.heads * copy.width == 0) continue;
    if (launches.empty() || launches.back().copies.count == kMostRanksCopies)
      launches.push_back({});
    CopyLaunch& launch = launches.back();
    RanksCopy made = resolved(copy, bases);
    made.first_block = static_cast<int>(launch.blocks);
    launch.blocks += (made.lines + made.lines_of_block - 1) / made.lines_of_block;
    launch.copies.copies[launch.copies.count++] = made;
  }
  return launches;
}

RanksPlace resolved(const MergePlace& place, const Bases& bases) {
  RanksPlace made{};
  RanksTensor RanksPlace::*const tensors[] = {
      &RanksPlace::values,          &RanksPlace::lse,           &RanksPlace::max,
      &RanksPlace::sum_exp,         &RanksPlace::max_with_sink, &RanksPlace::sum_exp_with_sink,
      &RanksPlace::lse_without_sink};
  static_assert(std::size(tensors) == kSlots);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const Slot& from = place.slots[slot];
    made.*tensors[slot] = {bases.address(from.at), from.strides.batch, from.strides.row,
                           from.strides.head};
  }
  made.type = type_of(place.dtype);
  made.first_head = static_cast<int>(place.heads.begin);
  made.heads = static_cast<int>(place.heads.size());
  return made;
}

MergeLaunch launch_of(const Merge& merge, const Bases& bases, const RanksPlace* places) {
  MergeLaunch launch{};
  RanksMerge& made = launch.merge;
  made.home = resolved(merge.home, bases);
  made.places = places;
  made.first = static_cast<const int*>(bases.address(merge.first));
  made.entries = static_cast<const RanksEntry*>(bases.address(merge.entries));
  made.lengths = static_cast<const int*>(bases.address(merge.lengths));
  made.numbers = static_cast<const int*>(bases.address(merge.numbers));
  made.rows = merge.rows;
  made.batches = static_cast<int>(merge.batches);
  made.first_head = static_cast<int>(merge.heads.begin);
  made.heads = static_cast<int>(merge.heads.size());
  made.width = static_cast<int>(merge.width);
  const std::int64_t elements = elements_at_once(merge, made, bases);
  made.vector = static_cast<int>(elements);
  made.threads = power_of_two_from(merge.width / elements);
  made.weighted = merge.weighted ? 1 : 0;
  made.uniform = merge.uniform ? 1 : 0;
  launch.blocks = blocks_for(merge.batches * merge.rows * merge.heads.size() * made.threads);
  return launch;
}

Status check_counts(const Schedule& schedule) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  bool fits = true;
  for (const auto* merges :
       {&schedule.outgoing, &schedule.early, &schedule.late, &schedule.sums, &schedule.learned}) {
    for (const Merge& merge : *merges)
      fits &= merge.batches * merge.rows * merge.heads.size() <= kMost;
  }
  const auto check = [&](const std::vector<Copy>& copies) {
    for (const Copy& copy : copies)
      fits &= copy.batches * copy.rows <= kMost &&
              copy.heads * copy.width * copy.element_bytes <= kMost;
  };
  for (const StageSchedule& stage : schedule.stages) {
    for (const auto* copies : {&stage.packs, &stage.early, &stage.late}) check(*copies);
  }
  check(schedule.statistics);
  if (fits) return {};
  return Status(ErrorCode::unsupported, "a rank has 2^31 rows of heads or more");
}

namespace {

Result<cuda::Kernel> found(const cuda::Module& module, const char* name, std::size_t bytes) {
  ATTN_ASSIGN(cuda::Kernel kernel, module.kernel(name));
  ATTN_ASSIGN(const std::vector<std::size_t> sizes, kernel.parameter_sizes());
  if (sizes == std::vector{bytes}) return kernel;
  return Error{ErrorCode::plan_damaged,
               fmt::format("the file's kernel {} has other parameters than this libattn", name),
               {"compile the spec with an attnc of the same version"}};
}

}  // namespace

Result<Kernels> Kernels::load(const cuda::Device& device, std::string_view image) {
  ATTN_ASSIGN(const cuda::Module module, cuda::Module::load(device, image));
  ATTN_ASSIGN(cuda::Kernel copy, found(module, "attn_ranks_copy", sizeof(RanksCopies)));
  ATTN_ASSIGN(cuda::Kernel merge, found(module, "attn_ranks_merge", sizeof(RanksMerge)));
  ATTN_ASSIGN(cuda::Kernel mark, found(module, "attn_ranks_mark", sizeof(void*)));
  return Kernels(std::move(copy), std::move(merge), std::move(mark));
}

Status Kernels::run(const CopyLaunch& launch, void* stream) const {
  RanksCopies copies = launch.copies;
  void* arguments[] = {&copies};
  return copy_.launch(stream, {{launch.blocks, 1, 1}, {kRanksThreads, 1, 1}}, arguments);
}

Status Kernels::run(const MergeLaunch& launch, void* stream) const {
  if (launch.blocks == 0) return {};
  RanksMerge merge = launch.merge;
  void* arguments[] = {&merge};
  return merge_.launch(stream, {{launch.blocks, 1, 1}, {kRanksThreads, 1, 1}}, arguments);
}

Status Kernels::mark(void* counter, void* stream) const {
  void* arguments[] = {&counter};
  return mark_.launch(stream, {}, arguments);
}

Status Kernels::pause(void* stream) const {
  RanksMerge of_no_rows{};
  of_no_rows.threads = 1;
  void* arguments[] = {&of_no_rows};
  return merge_.launch(stream, {}, arguments);
}

}  // namespace attn::ranks
