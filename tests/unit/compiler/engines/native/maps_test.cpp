#include "compiler/engines/native/maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/compiler/engines/native/lowered.h"

namespace attn::engines::maps_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kSizes;
using testing::lowered;
using testing::map_of;
using ::testing::Not;
using testing::source_of;
using testing::step_of;

// The rows that one copy of k moves: of pages groups of 8.
std::int64_t copied_rows(const std::string& clauses) {
  const NativeProgram made = lowered(kSizes + clauses).value();
  const std::vector<std::int64_t>& box = map_of(made, "k").box;
  return box.size() == 5 ? box[1] * box[3] : box[1];
}

TEST(Native, CopiesPiecesThatAreOfOnePage) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "layout k: paged(page = 64), v: paged(page = 48);").value();
  const plan::TensorMapArgument &k = map_of(made, "k"), &v = map_of(made, "v");
  // Columns of a panel, rows of a group, panels, groups, heads of all pages.
  EXPECT_THAT(k.dims, ::testing::ElementsAre(64, 8, 2, 8, 2 * 2 * 7));
  EXPECT_THAT(k.strides, ::testing::ElementsAre(128, 64, 8 * 128, 64 * 128));
  EXPECT_THAT(k.box, ::testing::ElementsAre(64, 8, 2, 2, 1));  // of blocks of 80 keys
  EXPECT_THAT(v.dims, ::testing::ElementsAre(64, 8, 2, 6, 2 * 2 * 9));
  EXPECT_THAT(v.box, ::testing::ElementsAre(64, 8, 2, 2, 1));
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("kKeyPages = 7;"), HasSubstr("const int* page_table_k,"),
                    HasSubstr("const int* page_table_v)")));
  EXPECT_EQ(copied_rows(""), 80);
  EXPECT_EQ(copied_rows("layout paged(page = 160);"), 80);
  EXPECT_EQ(copied_rows("layout paged(page = 160); mask q_idx - kv_idx < 40;"), 16);
  EXPECT_EQ(copied_rows("layout paged(page = 128); tensor d: i32[Skv]; mask d[kv_idx] > q_idx;"),
            16);
}

// Rows of 64 columns are one panel, and 96 columns three of 32.
TEST(Native, PagesOfOnePanelAreInNoGroups) {
  const std::string sizes = "dims B = 2, Hq = 4, Hkv = 2, Sq = 1, Skv = 400, Dqk = 64, Dv = 96; ";
  const NativeProgram made = lowered(sizes + "layout paged(page = 16);").value();
  EXPECT_THAT(map_of(made, "k").box, ::testing::ElementsAre(64, 16, 1, 1));
  EXPECT_THAT(map_of(made, "v").box, ::testing::ElementsAre(32, 8, 3, 2, 1));
  EXPECT_THAT(step_of(made).source,
              AllOf(Not(HasSubstr("kGroupedKeys")), HasSubstr("kGroupedValues = true;"),
                    HasSubstr("kValuePageStride = 2;"), HasSubstr("kValueHeadStride = 1;")));
}

// Each head of keys has one unit of queries, whose tile is the only one: a decode's.
TEST(Native, KeysOfOneTileAreReadOnce) {
  const auto source = [](const std::string& sizes) {
    return source_of("dims B = 64, Hq = 8, Hkv = 2, Skv = 4096, D = 128, " + sizes +
                     "; layout paged(page = 16); lengths kv;");
  };
  EXPECT_THAT(source("Sq = 1"), HasSubstr("kReadOnce = true;"));
  EXPECT_THAT(source("Sq = 4096"), Not(HasSubstr("kReadOnce")));
}

// Pieces of less than 16 rows would be many copies.
TEST(Native, RowsOfOtherPagesAreCopiedByThreads) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "layout k: paged(page = 24), v: paged(page = 32); lengths kv;")
          .value();
  const auto& arguments = step_of(made).launches.back().arguments;
  EXPECT_EQ(std::get<plan::TensorOperand>(arguments[1]).name, "k");
  EXPECT_EQ(std::get<plan::TensorMapArgument>(arguments[2]).tensor.name, "v");
  EXPECT_THAT(step_of(made).source,
              AllOf(HasSubstr("const unsigned short* k,"), HasSubstr("tensors.key_rows = k;"),
                    HasSubstr("kGatherKeys = true;"), HasSubstr("kTaken = 128;"),
                    Not(HasSubstr("kGatherValues")), HasSubstr("kKeyPageStride = 6144;"),
                    HasSubstr("kKeyHeadStride = 3072;"), HasSubstr("kKeyRowStride = 128;")));
  EXPECT_THAT(source_of(std::string(kSizes) + "layout paged(page = 1);"),
              HasSubstr("kGatherValues = true;"));
}

// Strides that a launch takes, as "k 2" or "k 0 in steps".
std::vector<std::string> strides_of(const plan::Launch& launch) {
  std::vector<std::string> strides;
  for (const plan::KernelArgument& argument : launch.arguments) {
    const auto* of = std::get_if<plan::StrideArgument>(&argument);
    if (of == nullptr) continue;
    strides.push_back(of->tensor + " " + std::to_string(of->axis) +
                      (of->in_steps ? " in steps" : ""));
  }
  return strides;
}

TEST(Native, TakesBoundStridesOfPages) {
  const NativeProgram made =
      lowered(std::string(kSizes) +
              "layout k: paged(page = 64, strides = bound), v: paged(page = 5, strides = bound);")
          .value();
  const plan::TensorMapArgument& k = map_of(made, "k");
  EXPECT_THAT(k.strides, ::testing::ElementsAre(1, 64, 8, 1));
  EXPECT_THAT(k.axes, ::testing::ElementsAre(2, -1, 2, plan::TensorMapArgument::kPagesAndHeads));
  EXPECT_THAT(strides_of(step_of(made).launches.back()),
              ::testing::ElementsAre("page_table_k 0", "k 0 in steps", "k 1 in steps",
                                     "page_table_v 0", "v 0", "v 1", "v 2"));
  for (const plan::TensorInfo& tensor : made.program.tensors) {
    const bool is_free =
        tensor.name == "k" || tensor.name == "v" || tensor.name.starts_with("page_table");
    EXPECT_EQ(tensor.bound_strides, is_free) << tensor.name;
  }
  EXPECT_THAT(source_of(std::string(kSizes) + "layout paged(page = 1);"),
              Not(HasSubstr("kBoundKeys")));
}

TEST(Native, TakesBoundStridesOfPackedRows) {
  const NativeProgram made = lowered(std::string(kSizes) +
                                     "layout q: thd(strides = bound), o: thd(strides = bound), "
                                     "k: thd, v: bhsd; outputs o, lse;")
                                 .value();
  EXPECT_THAT(map_of(made, "q").axes, ::testing::Contains(2));
  EXPECT_THAT(map_of(made, "k").axes, ::testing::IsEmpty());
  EXPECT_THAT(map_of(made, "q").axes, ::testing::ElementsAre(1, 2, 2, -1));
  EXPECT_THAT(strides_of(step_of(made).launches.back()), ::testing::ElementsAre("o 1", "o 2"));
}

std::vector<std::string> kernels_of(const NativeProgram& made) {
  std::vector<std::string> names;
  for (const plan::Launch& launch : step_of(made).launches) names.push_back(launch.kernel);
  return names;
}

// Rows are the third dimension of q's map, and the second of k's; the last two move a copy to a
// sequence: by rows ahead, and by as many back as the first has.
TEST(Native, SequencesShareAMap) {
  const NativeProgram made =
      lowered(std::string(kSizes) + "layout thd; mask q_idx >= kv_idx; outputs o, lse;").value();
  ASSERT_EQ(made.program.steps.size(), 2U);
  const auto& options = std::get<plan::DeriveStep>(made.program.steps[0]);
  EXPECT_TRUE(options.once);
  EXPECT_THAT(kernels_of(made), ::testing::ElementsAre("attn_schedule", "attn_forward"));
  const plan::KernelStep& step = step_of(made);
  const plan::TensorMapArgument& q = map_of(made, "q");
  const plan::TensorMapArgument& k = map_of(made, "k");
  constexpr std::int64_t kSteps = plan::TensorMapArgument::kPackedSteps, kBytes = 2;
  EXPECT_TRUE(q.packed && k.packed);
  EXPECT_EQ(q.dims[2], kSteps);
  EXPECT_EQ(k.dims[1], kSteps);
  EXPECT_THAT(q.strides, ::testing::ElementsAre(128, 1024, 1024, (1ll << 34) / kBytes - 1024));
  EXPECT_THAT(k.strides, ::testing::ElementsAre(256, 128, 256, (1ll << 34) / kBytes - 256));
  // That many steps of the last dimension are that many rows back: 2^64 bytes are none.
  EXPECT_EQ(static_cast<std::uint64_t>(q.strides[3] + q.strides[2]) * kBytes * kSteps, 0U);
  EXPECT_THAT(step.source, AllOf(HasSubstr("kThdQ = true;"), HasSubstr("kThdO = true;"),
                                 HasSubstr("tensors.row_starts = cu_seqlens_q;"),
                                 HasSubstr("tensors.column_starts = cu_seqlens_kv;")));
}

TEST(Native, EachTensorHasItsLayout) {
  const NativeProgram made = lowered(std::string(kSizes) +
                                     "layout q: thd, o: thd, k: paged(page = 16), v: bhsd; "
                                     "lengths kv;")
                                 .value();
  EXPECT_THAT(kernels_of(made), ::testing::ElementsAre("attn_schedule", "attn_forward"));
  EXPECT_THAT(
      step_of(made).source,
      AllOf(HasSubstr("tensors.q = &q;"), HasSubstr("tensors.k = &k;"),
            HasSubstr("tensors.v = &v;"), Not(HasSubstr("tensors.table")),
            HasSubstr("tensors.key_table = page_table_k;"), Not(HasSubstr("tensors.value_table")),
            HasSubstr("tensors.row_starts = cu_seqlens_q;")));
}

}  // namespace
}  // namespace attn::engines::maps_tests
