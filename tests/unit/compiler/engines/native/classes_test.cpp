#include "compiler/engines/native/classes.h"

#include <gmock/gmock.h>

#include <map>
#include <tuple>

#include "compiler/engines/shared/operands.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using masks::testing::of_spec;

constexpr const char* kDilated = "mask (q_idx - kv_idx) % 3 == 0 && abs(q_idx - kv_idx) <= 7; ";

ir::Attention of(const std::string& batches, const std::string& clauses) {
  return of_spec("attention a { dims B = " + batches +
                 ", Hq = 10, Hkv = 2, Sq = 12, Skv = 24, D = 8; " + clauses + " }");
}

std::optional<Form> form_of(const ir::Attention& attention) {
  const auto classes = classes_of(attention, attn::testing::in(false));
  return classes ? form_of_classes(attention, *classes) : std::nullopt;
}

using Place = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // batch, head, row

// Places of the rows of a tensor, by offset in memory.
std::map<std::int64_t, Place> rows_of(const ir::Attention& attention, const char* name) {
  const Dims4 dims = logical_dims(attention, name), strides = stored_strides(attention, name);
  std::map<std::int64_t, Place> rows;
  for (std::int64_t b = 0; b < dims[0]; ++b) {
    for (std::int64_t h = 0; h < dims[1]; ++h) {
      for (std::int64_t s = 0; s < dims[2]; ++s) {
        rows[b * strides[0] + h * strides[1] + s * strides[2]] = {b, h, s};
      }
    }
  }
  return rows;
}

// Rows are those of the whole, and so are their statistics and the keys that they see.
void expect_rows_of_whole(const ir::Attention& whole, const Form& form) {
  const std::int64_t heads = whole.dims[Dim::Hq], rows = whole.dims[Dim::Sq];
  const std::map<std::int64_t, Place> keys = rows_of(whole, "k"), parts = rows_of(whole, "o");
  const std::map<std::int64_t, Place> of_form = rows_of(form.attention, "q");
  const Dims4 of_k = stored_strides(form.attention, "k"),
              of_o = stored_strides(form.attention, "o");
  ASSERT_EQ(of_form.size(), rows_of(whole, "q").size());
  for (const auto& [offset, place] : rows_of(whole, "q")) {
    const auto [b, h, row] = place;
    const auto [kernel_b, kernel_h, i] = of_form.at(offset);
    EXPECT_EQ(form.statistics.place(kernel_b, kernel_h, i), (b * heads + h) * rows + row);
    EXPECT_EQ(parts.at(kernel_b * of_o[0] + kernel_h * of_o[1] + i * of_o[2]), place);
    for (std::int64_t j = 0; j < form.attention.dims[Dim::Skv]; ++j) {
      const Place key = keys.at(kernel_b * of_k[0] + kernel_h / 5 * of_k[1] + j * of_k[2]);
      EXPECT_EQ(key, (Place{b, h / 5, row % 3 + 3 * j}));
    }
  }
}

TEST(Classes, AreHeadsWhereHeadsAreContiguous) {
  const ir::Attention whole = of("2", std::string(kDilated) + "layout bshd;");
  const auto form = form_of(whole);
  ASSERT_TRUE(form);
  EXPECT_EQ(form->attention.dims[Dim::Hq], 30);
  EXPECT_EQ(form->attention.dims[Dim::Sq], 4);
  expect_rows_of_whole(whole, *form);
}

TEST(Classes, OfOneBatchAreBatches) {
  for (const char* layout : {"layout bshd;", "layout bhsd;", "layout sbhd;"}) {
    const ir::Attention whole = of("1", std::string(kDilated) + layout);
    const auto form = form_of(whole);
    ASSERT_TRUE(form) << layout;
    EXPECT_EQ(form->attention.dims[Dim::B], 3);
    expect_rows_of_whole(whole, *form);
  }
}

TEST(Classes, TheWholeIsAForm) {
  const ir::Attention whole = of("2", "layout bhsd;");
  const Form form = whole_form(whole);
  EXPECT_EQ(form.statistics.place(1, 9, 11), (1 * 10 + 9) * 12 + 11);
}

TEST(Classes, TensorsOfTheHeadAreThoseOfTheWhole) {
  const auto form =
      form_of(of("2", std::string(kDilated) +
                          "layout bshd; tensor s: f32[Hq]; sink s[h]; score score * s[h];"));
  ASSERT_TRUE(form);
  EXPECT_EQ(ir::to_source(form->attention, *form->attention.sink), "s[h % 10]");
  EXPECT_EQ(ir::to_source(form->attention, form->attention.score), "score * s[h % 10]");
}

TEST(Classes, AreThoseOfTheLargestModulus) {
  const auto classes =
      classes_of(of("1", "mask (q_idx - kv_idx) % 4 == 0 && (q_idx - kv_idx) % 2 == 0;"),
                 attn::testing::in(false));
  ASSERT_TRUE(classes);
  EXPECT_EQ(classes->view.classes, 4);
}

TEST(Classes, OtherAttentionsHaveNone) {
  const std::string dilated = kDilated;
  for (const std::string& clauses :
       {dilated + "layout bhsd;", dilated + "layout packed_qkv;", dilated + "lengths kv;",
        dilated + "dropout 0.1;", dilated + "tensor t: f32[Sq]; score score + t[q_idx];",
        dilated + "tensor t: i32[Skv]; mask t[kv_idx] > 0;", dilated + "score score + q_idx;",
        std::string("mask (q_idx - kv_idx) % 5 == 0;"), std::string("mask q_idx >= kv_idx;"),
        std::string("mask (q_idx - kv_idx) % 3 == 1;"), std::string("")}) {
    EXPECT_FALSE(form_of(of("2", clauses))) << clauses;
  }
  EXPECT_TRUE(form_of(of("2", dilated + "tensor t: i32[Hq]; mask t[h] > 0; "
                                        "score score - abs(q_idx - kv_idx);")));
}

}  // namespace
}  // namespace attn::engines::native
