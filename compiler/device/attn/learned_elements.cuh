// Elements of learned tensors that scores of the backward read, and what is added to each.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/learned_parts.cuh"

namespace kernels {

template <class C>
constexpr int kDiagonalsOfHead = C::kRows + C::kColumns - 1;

// Adds to elements of the tensors of E::kLearned.
template <class Base>
struct LearnedElements : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::tensors, Base::expressions, Base::stages, Base::group, Base::key, Base::s, Base::held,
      Base::kScores, Base::lane, Base::warp, Base::shared_word, Base::row_of, Base::held_row,
      Base::held_key;

  // The element that the score of `row` and `of_key` reads, or -1.
  template <int kPart>
  __device__ __forceinline__ long long element_of(const RowBlock& block, int row, int of_key,
                                                  int turn) const {
    return expressions.template element<kPart>(block.b(), block.h(), min(row, C::kRows - 1),
                                               min(of_key, C::kColumns - 1), turn);
  }
  template <int kPart>
  __device__ __forceinline__ void add_to_element(long long element, float sum) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    if (sum == 0 || element < 0) return;
    ExactSums{tensors.words + kOf.place, kOf.elements}.add(element, sum);
  }

  // Whose row is so far from its column.
  template <int kPart>
  __device__ __forceinline__ void add_to_diagonal(int head, int distance, float sum) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    const int n = distance + C::kColumns - 1;
    if (sum == 0 || (unsigned)n >= kDiagonalsOfHead<C>) return;
    const long long at = (long long)head * kDiagonalsOfHead<C> + n;
    if constexpr (kOf.bits == 0) {
      ExactSums{tensors.words + kOf.place, kOf.elements}.add(at, sum);
    } else {
      const float units = sum * units_of<kPart>();
      FixedSums::add(tensors.words + kOf.place + at, units);
      if (units - units != 0) fixed_sums().lose();
    }
  }

  // Adds to elements that no other score of the head reads, or stores what it has.
  template <int kPart, typename Part>
  __device__ __forceinline__ void add_to_own(const RowBlock& block, Part part) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    constexpr bool kShared = kOf.reach == Reach::shared, kFixed = kShared && kOf.bits > 0;
    const int row = row_of(block, 0);
    const long long first = expressions.template element<kPart>(block.b(), block.h(), row, key, 0);
    const float units = kFixed ? units_of<kPart>() : 1;
    bool lost = false;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int down = WarpScores<kScores>::row_of(i), right = WarpScores<kScores>::key_of(i);
      const long long at = first + down * kOf.row + right * kOf.column;
      const float sum = part(i) * units;
      if (!C::kRowsFit && row + down >= C::kRows) continue;
      if (C::kColumns % S::kKeys != 0 && key + right >= C::kColumns) continue;
      if constexpr (kFixed) {
        FixedSums::add(tensors.words + kOf.place + at, sum);
        lost |= sum - sum != 0;
      } else if constexpr (kShared) {
        add_to_element<kPart>(at, sum);
      } else {
        E::template store<kPart>(tensors.own[kOf.place], at, scaled(sum));
      }
    }
    if (lost) fixed_sums().lose();
  }

  // With kNarrow, dS' is in units of the tensors as they are stored.
  __device__ __forceinline__ float scaled(float part) const {
    if constexpr (C::kNarrow) part *= expressions.slope_factor();
    return part;
  }

  __device__ __forceinline__ FixedSums fixed_sums() const {
    return {reinterpret_cast<Largest*>(tensors.words), nullptr};
  }

  template <int kPart>
  __device__ __forceinline__ float units_of() const {
    return FixedSums::units((int)load_shared(stages.power_word()), E::kLearned[kPart].bits);
  }

  // What score i adds to the gradient.
  template <int kPart>
  __device__ __forceinline__ float part_of(const RowBlock& block, int i, int turn,
                                           float sum) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    if constexpr (kOf.held >= 0) {
      return held[kOf.held][i];
    } else {
      return part_by<kPart>(block, s[i], i, turn, sum);
    }
  }

  // Where it is known again, by what `slope` is, dS'. `sum`: of terms in turns.
  template <int kPart>
  __device__ __forceinline__ float part_by(const RowBlock& block, float slope, int i, int turn,
                                           float sum) const {
    const float by = expressions.template local<kPart>(block.b(), block.h(), held_row(block, i),
                                                       held_key(i), turn, sum);
    return part_with<kPart>(slope, by);
  }
  template <int kPart>
  static __device__ __forceinline__ float part_with(float slope, float by) {
    return !E::kLearned[kPart].finite && slope == 0 ? 0 : slope * by;
  }

  // Only this warp adds there.
  __device__ __forceinline__ void add_to_heads(long long place, int head, float sum) const {
    const int block = (int)shared_word(stages.item_words() + 4);
    float* const to =
        tensors.parts + place + ((long long)head * C::kKeyBlocks + block) * kPartsOfBlock;
    if (lane() == 0) atomicAdd(to + group * 4 + warp(), sum);
  }
};

}  // namespace kernels
