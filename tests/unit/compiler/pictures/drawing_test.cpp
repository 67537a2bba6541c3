#include "compiler/pictures/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/pictures/terminal.h"
#include "tests/unit/compiler/pictures/spec_text.h"

namespace attn::pictures {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCausal = R"(attention causal {
  dims B = 2, Hq = 3, Hkv = 1, Sq = 8, Skv = 8, D = 8;
  mask q_idx >= kv_idx;
  outputs o;
})";

constexpr const char* kByHead = R"(attention by_head {
  dims B = 2, Hq = 4, Hkv = 1, Sq = 8, Skv = 8, D = 8;
  mask q_idx - kv_idx < 2 * (h // 2) + 1 && q_idx >= kv_idx;
  outputs o;
})";

Picture picture(const char* text, const Options& options = {}) {
  return picture_of(attention_of(text), {}, options).value();
}

TEST(Picture, PlacesThatLookAlikeShareAPanel) {
  const Picture causal = picture(kCausal), by_head = picture(kByHead);
  ASSERT_EQ(causal.panels.size(), 1U);
  EXPECT_EQ(title_of(causal, causal.panels[0]), "");
  ASSERT_EQ(by_head.panels.size(), 2U);
  EXPECT_EQ(title_of(by_head, by_head.panels[0]), "heads 0 to 1");
  EXPECT_EQ(title_of(by_head, by_head.panels[1]), "heads 2 to 3");
  const Picture one = picture(kByHead, {.head = 3});
  ASSERT_EQ(one.panels.size(), 1U);
  EXPECT_EQ(title_of(one, one.panels[0]), "head 3");
}

TEST(Picture, SaysWhatItShows) {
  const Picture scores = picture(kCausal);
  EXPECT_EQ(share_text(scores.panels[0].cells.share), "56.2 % of scores");
  EXPECT_EQ(blocks_text(scores.panels[0].cells), "");
  const Picture blocks = picture(kCausal, {.cell = {{2, 4}}});
  EXPECT_EQ(blocks_text(blocks.panels[0].cells), "2 full and 4 partial of 8 blocks of 2 x 4");
  EXPECT_EQ(grouped(131072), "131,072");
  EXPECT_EQ(grouped(999), "999");
}

TEST(Picture, CellsAreNoLargerThanTheScores) {
  const Picture blocks = picture(kCausal, {.cell = {{INT64_MAX, 4}}});
  EXPECT_EQ(blocks_text(blocks.panels[0].cells), "0 full and 2 partial of 2 blocks of 8 x 4");
}

TEST(Picture, ChangesThatAreNoFiniteNumbersAreSeen) {
  const auto inks = [](const char* score, double before = 1) {
    const std::string text = std::string(R"(attention t {
      dims B = 1, Hq = 1, Sq = 2, Skv = 2, D = 8;
      mask q_idx >= kv_idx;
      outputs o;
      score )") + score + ";\n}\n";
    const Picture drawn = picture(text.c_str(), {.score = before});
    EXPECT_EQ(drawn.has_nan, legend_of(drawn).size() == 3);
    return inks_of(drawn, drawn.panels.front());
  };
  const Ink middle = change_ink(kChanges / 2);
  EXPECT_THAT(inks("where(q_idx == 1 && kv_idx == 0, log(score - 2), score)"),
              ElementsAre(middle, Ink::empty, Ink::not_a_number, middle));
  EXPECT_THAT(inks("where(q_idx == 1 && kv_idx == 0, log(score - 1), score)"),
              ElementsAre(middle, Ink::empty, change_ink(0), middle));
  EXPECT_THAT(
      inks("where(q_idx == 0, -0.3, 1.4) * score", 1.2e308),
      ElementsAre(change_ink(0), Ink::empty, change_ink(kChanges - 1), change_ink(kChanges - 1)));
}

TEST(Picture, Refuses) {
  const ir::Attention attention = attention_of(kCausal);
  EXPECT_EQ(picture_of(attention, {}, {.batch = 2}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(picture_of(attention, {}, {.head = -1}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(picture_of(attention, {}, {.cell = {{2, 2}}, .score = 1}).error().code,
            ErrorCode::invalid_argument);
  ir::Attention empty = attention;
  empty.dims.set(ir::Dim::Skv, 0);
  EXPECT_EQ(picture_of(empty, {}, {}).error().code, ErrorCode::invalid_argument);
  ir::Attention large = attention;
  large.dims.set(ir::Dim::Sq, 1 << 20);
  large.dims.set(ir::Dim::Skv, 1 << 20);
  EXPECT_EQ(picture_of(large, {}, {.cell = {{16, 16}}}).error().code, ErrorCode::invalid_argument);
}

TEST(Drawing, JoinsCellsOfOneColour) {
  const std::string svg = to_svg(drawing_of(picture(kCausal, {.cell = {{4, 4}}})), {});
  EXPECT_THAT(svg, HasSubstr("d=\"M0 1h1v1h-1z\""));              // the full block
  EXPECT_THAT(svg, HasSubstr("d=\"M0 0h1v1h-1zM1 1h1v1h-1z\""));  // the partial ones
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(to_svg(drawing_of(picture(kCausal)), Theme::dark),
              Not(HasSubstr("prefers-color-scheme")));
}

TEST(Drawing, IsAPngOfTwiceItsSize) {
  const Drawing drawing = drawing_of(picture(kCausal));
  const std::string png = to_png(drawing, Theme::light).value();
  ASSERT_GT(png.size(), 24U);
  EXPECT_EQ(png.substr(1, 3), "PNG");
  const auto byte = [&](std::size_t i) {
    return static_cast<int>(static_cast<unsigned char>(png[i]));
  };
  EXPECT_EQ(byte(18) * 256 + byte(19), static_cast<int>(2 * drawing.width));
  EXPECT_EQ(byte(22) * 256 + byte(23), static_cast<int>(2 * drawing.height));
}

TEST(Drawing, IsNoPngOfTooManyPixels) {
  for (const auto& [width, height] : {std::pair{kMostPixelsAlong, 1.0}, {1e5, 1e5}}) {
    Drawing drawing;
    drawing.width = width;
    drawing.height = height;
    const auto png = to_png(drawing, Theme::light);
    ASSERT_FALSE(png.ok());
    EXPECT_EQ(png.error().code, ErrorCode::invalid_argument);
  }
}

// A causal mask of `owners` times two rows, which each has two of.
struct OfOwners {
  explicit OfOwners(std::uint8_t owners) {
    const std::int64_t rows = 2 * owners;
    for (std::uint8_t i = 0; i < owners; ++i) {
      owned.push_back({i, {0, 1}, {{2 * i, 2 * i + 2}}, {{0, rows}}});
      how.owners.push_back("rank " + std::to_string(i));
    }
    how.owned = owned;
    how.division = "ranks";
    text = "attention f { dims B = 1, Hq = 1, D = 8, Sq = " + std::to_string(rows) +
           "; mask q_idx >= kv_idx; }";
  }
  Picture made() const { return picture(text.c_str(), how); }

  std::vector<Owned> owned;
  Options how;
  std::string text;
};

TEST(Drawing, HasNumbersOfOwnersWhereColoursDoNotTellThemApart) {
  const std::string few = to_svg(drawing_of(OfOwners(7).made()), {});
  EXPECT_THAT(few, Not(HasSubstr(">6</text>")));
  const std::string many = to_svg(drawing_of(OfOwners(8).made()), {});
  EXPECT_THAT(many, HasSubstr(" text-anchor=\"middle\">7</text>"));
  EXPECT_THAT(many, HasSubstr(">rank 7</text>"));
  // Two rows of 4 pixels are lower than a number, which stands where it covers no other one.
  const std::string higher = to_svg(drawing_of(OfOwners(60).made()), {});
  for (int owner = 10; owner < 60; ++owner)
    EXPECT_THAT(higher, HasSubstr(" text-anchor=\"middle\">" + std::to_string(owner) + "</text>"));
  // Two rows of 1.5 are too low.
  EXPECT_THAT(to_svg(drawing_of(OfOwners(160).made()), {}), Not(HasSubstr(">159</text>")));
}

TEST(Drawing, NamesOwnersThatItHas) {
  OfOwners of(9);
  of.how.owners.push_back("rank 9");  // with the colour of rank 2
  const std::string svg = to_svg(drawing_of(of.made()), {});
  EXPECT_THAT(svg, HasSubstr(">rank 8</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">rank 9</text>")));
}

TEST(Terminal, HasLettersOfOwners) {
  OfOwners of(12);
  of.how.cell = {{1, 4}};
  const std::string text = to_terminal(of.made(), false);
  EXPECT_THAT(text, HasSubstr("      20  a a a a a a\n          a a a a a a\n          b b"));
  EXPECT_THAT(text, HasSubstr("\n         9 rank 9\n         a rank 10\n"));
  // The legend of 65 owners is in two columns, which are read downwards.
  const std::string many = to_terminal(OfOwners(65).made(), false);
  EXPECT_THAT(many, HasSubstr(" Z Z Z"));
  EXPECT_THAT(many, HasSubstr(" ? ? ?"));
  EXPECT_THAT(many, HasSubstr("   A rank 36"));
}

TEST(Terminal, HasSymbolsInColourWhereColoursDoNotTellOwnersApart) {
  EXPECT_THAT(to_terminal(OfOwners(7).made(), true), Not(HasSubstr("m 6")));
  EXPECT_THAT(to_terminal(OfOwners(8).made(), true), HasSubstr("\033[38;2;77;163;217m 7 7 7"));
}

TEST(Terminal, HasTwoRowsALine) {
  EXPECT_EQ(to_terminal(picture(kCausal), false),
            "causal: 8 rows x 8 columns of scores\n"
            "\n"
            "         56.2 % of scores\n"
            "   q_idx 0  kv_idx\n"
            "       0 █▄······\n"
            "         ███▄····\n"
            "         █████▄··\n"
            "         ███████▄\n"
            "\n"
            "         █ visible   · hidden\n");
}

TEST(Terminal, HasColours) {
  const std::string text = to_terminal(picture(kCausal), true);
  EXPECT_THAT(text, HasSubstr("\033[38;2;91;141;239m"));
  EXPECT_THAT(text, HasSubstr("\033[0m\n"));
}

TEST(Terminal, FitsIntoIt) {
  const Options options = for_terminal({}, 80, false);
  EXPECT_EQ(options.scores, 70);
  EXPECT_EQ(options.blocks, 35);
  EXPECT_EQ(for_terminal({}, 80, true).blocks, 70);
  Options of_owners;
  of_owners.owners.resize(7);
  EXPECT_EQ(for_terminal(of_owners, 80, true).blocks, 70);
  of_owners.owners.resize(8);
  EXPECT_EQ(for_terminal(of_owners, 80, true).scores, 35);
}

}  // namespace
}  // namespace attn::pictures
