// A thread of the forward kernel that computes: what it knows and holds. What it does with that are
// the layers forward_*.cuh, templates of the class below them; forward_consumer.cuh has their
// order.
#pragma once

#include "attn/forward_range.cuh"
#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/philox.cuh"
#include "attn/reals.cuh"
#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// kSecond: it has the columns of o from kShare on, and no scores.
template <class C_, class E_, bool kSecond_>
struct ForwardThread {
  using C = C_;
  using E = E_;
  static constexpr bool kSecond = kSecond_;
  using Float = typename C::Float;
  using Output = typename C::Output;
  using OutputBits = typename Output::Bits;
  using S = Stages<C>;
  static constexpr bool kOf8Bits = S::kOf8Bits;
  static constexpr int kFirstOfWidth = kSecond ? C::kShare : 0;
  static constexpr int kWidth = kSecond ? C::kWidth - C::kShare : C::kShare;
  static constexpr int kScores = C::kKeys / 2, kOutputs = kWidth / 2;
  static constexpr int kWeightsOfWord = 4 / S::kElement, kWords = kScores / kWeightsOfWord;
  // Whether the largest weight, of those that dropout keeps, is not that of the maximum.
  static constexpr bool kKeepsLargest = C::kAmaxOfWeights && (C::kLazy || E::kKeep || E::kRandom);
  // Whether maxima of rows are not computed for every block (FollowingWeights).
  static constexpr bool kFollows = kFollowsMaxima<C, E>;
  using Range = WeightRange<C, E>;
  // Whether weights are packed while the product with those before may still run. Those of 8 bits
  // are few enough that both fit.
  static constexpr bool kPacksEarly = E::kRandom || kOf8Bits;
  static constexpr float kWeightScale = 32768;  // of kSigmoid
  // Whether modified scores are those of scaled products: q and k have 8 bits.
  static constexpr bool kScalesProducts = (kOf8Bits || C::kNarrow) && E::kScore;

  const Stages<C> stages;
  const ForwardTensors& tensors;
  const E& expressions;
  const int group, lane;
  const int first_row;     // of the tile; the other is 8 below
  const int first_column;  // of a block
  const float exponent;    // what makes powers of 2 of scores
  const float scale;       // of products, if scores are modified ones of 8-bit floats
  const float raised;      // the binary logarithm of what weights are multiplied by
  const float limit;       // with kFollows: the largest power of 2 that is a weight
  const uint2 random_key;  // of random dropout
  Turn<C::kQueries> query{};
  Turn<C::kStages> key{}, value{};
  Turn<C::kTables> table{};
  Turn<C::kValuesOfKeys ? 1 : 2> handed{};
  unsigned tile_words[2] = {0, 0};  // of the tile: its rows take more registers (rows_of)
  unsigned block = 0;
  int adds = 0;              // whether o holds a sum
  float maximum[2], sum[2];  // with kFollows: the maximum as a power of 2
  float kept[2] = {0, 0};    // with kKeepsLargest: weights, as sums are; with kFollows: scores
  float o[kOutputs], s[kScores];
  unsigned p[kWords];

  __device__ __forceinline__ ForwardThread(const Stages<C>& stages_, const ForwardTensors& tensors_,
                                           const E& expressions_, int group_)
      : stages(stages_),
        tensors(tensors_),
        expressions(expressions_),
        group(group_),
        lane(threadIdx.x & 31),
        first_row(group_ * 64 + (threadIdx.x / 32 & 3) * 16 + (threadIdx.x & 31) / 4),
        first_column((threadIdx.x & 3) * 2),
        exponent(expressions_.weight() * kLog2E),
        scale(scale_of(expressions_)),
        raised(Range::raised_by(tensors_)),
        limit(raised + Range::slack(raised)),
        random_key(key_of(expressions_)) {}

  // Statistics of the two rows of a tile that the thread has.
  struct Statistics {
    const float (&maxima)[2], (&sums)[2], (&kept)[2];
  };

  static __device__ __forceinline__ float scale_of(const E& expressions) {
    if constexpr (kScalesProducts) return expressions.scale();
    return 1;
  }

  static __device__ __forceinline__ uint2 key_of(const E& expressions) {
    if constexpr (E::kRandom) return dropout_key(*expressions.seed(), *expressions.offset());
    return make_uint2(0, 0);
  }

  __device__ __forceinline__ void release(unsigned full) {
    if (lane == 0) arrive(empty_of(full));
  }

  __device__ __forceinline__ TileRows<C> rows_of(const unsigned (&words)[2]) const {
    TileRows<C> rows;
    rows.set(words[0], words[1], first_row);
    return rows;
  }
  // The same where a tile ends: registers are too few to keep what it takes beside blocks of 8
  // bits.
  __device__ __forceinline__ TileRows<C> finished_rows_of(const unsigned (&words)[2]) const {
    if constexpr (!kOf8Bits) return rows_of(words);
    const unsigned thread = unknown((int)threadIdx.x);
    TileRows<C> rows;
    rows.set(words[0], words[1], group * 64 + (thread / 32 & 3) * 16 + (thread & 31) / 4);
    return rows;
  }

  // Waits for the next block's keys. `offset`, which is 0, keeps the compiler from waiting earlier.
  __device__ __forceinline__ void fetch(unsigned offset) {
    wait(stages.key_full(key.stage) + offset, key.parity);
    read_block();
  }
  __device__ __forceinline__ void read_block() {
    if constexpr (C::kGatherKeys && !C::kWidens) publish_writes();
    block = __shfl_sync(~0u, load_shared(stages.key_word(key.stage)), 0);
  }
};

}  // namespace kernels
