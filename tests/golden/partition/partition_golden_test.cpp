// The partition of some specs' masks into parts, at the sizes of the specs: specs.expected. The
// score and masks of each part are below its view.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/driver/driver.h"
#include "compiler/engines/shared/partition.h"
#include "compiler/rewrite/pass.h"
#include "tests/support/contexts.h"
#include "tests/support/golden.h"

namespace attn::masks {
namespace {

constexpr const char* kSpecs[] = {"specs/chunked.attn",
                                  "specs/dilated_window.attn",
                                  "specs/prefix_lm.attn",
                                  "specs/checkerboard.attn",
                                  "specs/block_diffusion.attn",
                                  "specs/symmetric_window.attn",
                                  "bench/variants/longformer.attn"};

std::string text_of(const engines::Stretch& stretch, std::int64_t classes) {
  std::string text = fmt::format("{} + {} i, i < {}", stretch.begin, stretch.step, stretch.count);
  if (classes > 1) text = fmt::format("{} c + {}", stretch.shift, text);
  return text;
}

std::string text_of(const engines::Part& part, bool backward) {
  const engines::View& view = part.view;
  std::string text = fmt::format("    rows {}; columns {}", text_of(view.rows, view.classes),
                                 text_of(view.columns, view.classes));
  text += view.classes > 1 ? fmt::format("; {} classes\n", view.classes) : "\n";
  const ir::Attention form = rewrite::kernel_form(part.attention, attn::testing::in(backward));
  text += fmt::format("      score {}\n", ir::to_source(form, form.score));
  for (const ir::ExprId mask : form.masks) {
    text += fmt::format("      mask  {}\n", ir::to_source(form, mask));
  }
  return text;
}

std::string text_of(const ir::Attention& attention, bool backward) {
  std::string text = backward ? "  backward: " : "  forward: ";
  const auto partition = engines::best_partition(attention, attn::testing::in(backward));
  if (!partition) return text + "no parts\n";
  text += fmt::format("{}\n", partition->name);
  for (const engines::Part& part : partition->parts) text += text_of(part, backward);
  return text;
}

TEST(PartitionGolden, OfSomeSpecs) {
  std::string text;
  for (const char* path : kSpecs) {
    const auto source = support::Source::read(std::string(ATTN_SOURCE_DIR "/") + path);
    ASSERT_TRUE(source.ok());
    diag::Sink sink(*source);
    const auto attention = driver::front_end(*source, {}, sink);
    ASSERT_TRUE(attention.has_value()) << diag::to_text(sink);
    text += attention->name + "\n";
    for (const ir::ExprId mask : attention->masks) {
      text += fmt::format("  mask  {}\n", ir::to_source(*attention, mask));
    }
    text += text_of(*attention, false) + text_of(*attention, true) + "\n";
  }
  attn::testing::expect_golden("tests/golden/partition/specs.expected", text);
}

}  // namespace
}  // namespace attn::masks
