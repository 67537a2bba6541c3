// Scores that the spec modifies.
#pragma once

#include "attn/tile_rows.cuh"

namespace kernels {

// Makes scores of products.
template <class Base>
struct ForwardScores : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::expressions, Base::tile_words, Base::s, Base::scale, Base::kScalesProducts,
      Base::kScores, Base::rows_of, Base::column, Base::held_column, Base::columns_to,
      Base::begin_table, Base::read_table, Base::end_table;

  // `shift`: what is to be added to all scores of a row, besides.
  __device__ __forceinline__ void modify(float (&shift)[2]) {
    const TileRows<C> rows = rows_of(tile_words);
    const auto lines_of = [&](int r) {
      return expressions.lines(rows.b, rows.h[r], rows.row(r), column(0));
    };
    const typename E::Lines lines[2] = {lines_of(0), lines_of(1)};
    begin_table();
#pragma unroll
    for (int part = 0; part < kScores / 8; ++part) {
      float entries[8] = {};
      read_table(part, entries);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int i = 8 * part + j, r = i / 2 & 1, offset = columns_to(i);
        const float entry = entries[j];
        s[i] = expressions.score(rows.b, rows.h[r], rows.row(r), held_column(i), (float)offset,
                                 lines[r], entry, kScalesProducts ? s[i] * scale : s[i]);
      }
    }
    end_table();
    if constexpr (E::kTurnsOfScore > 0) add_terms(rows, lines);
#pragma unroll
    for (int r = 0; r < 2; ++r) shift[r] = lines[r].shift;
  }

 private:
  // Adds terms that are taken in turns, to some of the scores: features of all would be too many.
  template <class Lines>
  __device__ __forceinline__ void add_terms(const TileRows<C>& rows, const Lines (&lines)[2]) {
    constexpr int kSome = kScores % 16 == 0 ? 16 : 8;
#pragma unroll
    for (int from = 0; from < kScores; from += kSome) {
      typename E::Features features[kSome];
#pragma unroll
      for (int i = 0; i < kSome; ++i) {
        const int r = i / 2 & 1;
        features[i] = expressions.features(rows.b, rows.h[r], rows.row(r), held_column(from + i),
                                           (float)columns_to(from + i), lines[r]);
      }
#pragma unroll 1
      for (int turn = 0; turn < E::kTurnsOfScore; ++turn) {
#pragma unroll
        for (int i = 0; i < kSome; ++i)
          s[from + i] += expressions.term_of_score(rows.b, rows.h[i / 2 & 1], turn, features[i]);
      }
    }
  }
};

}  // namespace kernels
