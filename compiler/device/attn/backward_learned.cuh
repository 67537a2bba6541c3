// Gradients of learned tensors that a block of scores adds to.
#pragma once

#include "attn/learned_elements.cuh"

namespace kernels {

// Sums what adds to the same element, as far as the indices tell.
template <class Base>
struct BackwardLearned : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::stages, Base::expressions, Base::steps, Base::key, Base::s, Base::kScores, Base::lane,
      Base::rows_of, Base::add_to_heads;

  // Those of a part that is summed, one for each score.
  static constexpr int kSums = C::kSummed > 0 ? kScores : 1;
  float summed[kSums];

  __device__ __forceinline__ void begin_sums() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) summed[i] = 0;
  }
  // Adds them to the elements that scores of these rows read, and begins again.
  __device__ __forceinline__ void add_summed(const RowBlock& block) {
    if constexpr (C::kSummed > 0) {
      add_sums<C::kSummed - 1>(block, 0, [&](int i) { return summed[i]; });
      begin_sums();
    }
  }

  // Adds what differentiate() left of this step to the gradients of learned tensors, while the
  // product that makes dK is computed.
  __device__ __forceinline__ void learn() {
    if constexpr (E::kParts > 0) {
      const RowBlock block = rows_of(steps);
      float sums[E::kTurnsOfParts > 0 ? kScores : 1] = {};  // that local derivatives have
      if constexpr (E::kByFeatures) learn_by_features(block, sums);
      add_part<0>(block, sums);
    }
  }

  // Those in turns, where local derivatives follow from features of each score.
  template <int kSums>
  __device__ __forceinline__ void learn_by_features(const RowBlock& block, float (&sums)[kSums]) {
    typename E::Features features[kScores];
    this->make_features(block, features);
    add_turns<0>(block, features);
    if constexpr (E::kTurnsOfParts > 0) {
      this->template sum_turns<E::kTurnsOfParts>(sums, [&](int turn, int i) {
        return expressions.term_of_parts(block.b(), block.h(), turn, features[i]);
      });
    }
  }
  template <int kPart, class Features>
  __device__ __forceinline__ void add_turns(const RowBlock& block,
                                            const Features (&features)[kScores]) {
    if constexpr (E::kLearned[kPart].turns > 1) {
#pragma unroll 1
      for (int turn = 0; turn < E::kLearned[kPart].turns; ++turn) {
        add_sums<kPart>(block, turn, [&](int i) {
          const float by =
              expressions.template local_by<kPart>(block.b(), block.h(), turn, features[i]);
          return this->template part_with<kPart>(s[i], by);
        });
      }
    }
    if constexpr (kPart + 1 < E::kParts) add_turns<kPart + 1>(block, features);
  }

  // This one and those behind it.
  template <int kPart, int kSums>
  __device__ __forceinline__ void add_part(const RowBlock& block, const float (&sums)[kSums]) {
    if constexpr (E::kLearned[kPart].turns == 1) {
      add_turn<kPart>(block, 0, sums);
    } else if constexpr (!E::kByFeatures) {
#pragma unroll 1
      for (int turn = 0; turn < E::kLearned[kPart].turns; ++turn)
        add_turn<kPart>(block, turn, sums);
    }
    if constexpr (kPart + 1 < E::kParts) add_part<kPart + 1>(block, sums);
  }
  template <int kPart, int kSums>
  __device__ __forceinline__ void add_turn(const RowBlock& block, int turn,
                                           const float (&sums)[kSums]) {
    const auto sum = [&](int i) { return kSums > 1 ? sums[i] : 0; };
    if constexpr (E::kLearned[kPart].is_long) {
      float parts[kScores];
#pragma unroll
      for (int i = 0; i < kScores; ++i) parts[i] = s[i];
#pragma unroll 1
      for (int i = 0; i < kScores; ++i)
        parts[i] = this->template part_by<kPart>(block, parts[i], i, turn, sum(i));
      add<kPart>(block, turn, [&](int i) { return parts[i]; });
    } else {
      add<kPart>(block, turn,
                 [&](int i) { return this->template part_of<kPart>(block, i, turn, sum(i)); });
    }
  }
  // Adds parts of scores to elements, or to sums of other batches.
  template <int kPart, typename Part>
  __device__ __forceinline__ void add(const RowBlock& block, int turn, Part part) {
    if constexpr (kPart + 1 == C::kSummed) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) summed[i] += part(i);
    } else {
      add_sums<kPart>(block, turn, part);
    }
  }
  template <int kPart, typename Part>
  __device__ __forceinline__ void add_sums(const RowBlock& block, int turn, Part part) {
    constexpr Reach kReach = E::kLearned[kPart].reach;
    const WarpScores<kScores> scores{lane()};
    const int first_row = block.first(), first_key = key - (int)(lane() / 4);
    const auto element = [&](int row, int of_key) {
      return this->template element_of<kPart>(block, first_row + row, first_key + of_key, turn);
    };
    const auto add = [&](int row, int of_key, float sum) {
      this->template add_to_element<kPart>(element(row, of_key), sum);
    };
    if constexpr (kReach == Reach::heads) {
      const long long place = E::kLearned[kPart].place + turn * kPartsOfTurn<C>;
      add_to_heads(place, block.head, scores.sum(part));
    } else if constexpr (kReach == Reach::row) {
      scores.add_rows(part, add);
    } else if constexpr (kReach == Reach::column) {
      scores.add_columns(part, add);
    } else if constexpr (kReach == Reach::diagonal) {
      float* const scratch = stages.scratch(this->warp_of_keys());
      scores.add_diagonals(scratch, part, [&](int distance, float sum) {
        this->template add_to_diagonal<kPart>(block.head, first_row - first_key + distance, sum);
      });
    } else if constexpr (kReach == Reach::unknown) {
      scores.add_runs(part, element, [&](long long of_run, float sum) {
        this->template add_to_element<kPart>(of_run, sum);
      });
    } else {
      this->template add_to_own<kPart>(block, part);
    }
  }
};

}  // namespace kernels
