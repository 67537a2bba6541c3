// What is not in use may hold anything: pages (page 0 among them), rows past the lengths, entries
// of page tables. Bits of results are the same as with zeros and page 0 there.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/driver/driver.h"
#include "tests/host/attention.h"
#include "tools/execution.h"

namespace attn::host::unused_tests {
namespace {

struct Case {
  const char* name;
  std::vector<const char*> strategies;
  std::string clauses;
};

const Case kCases[] = {
    {"PagesOf16InParts",
     {"native", "composite", "unfused"},
     "dims B = 3, Hq = 8, Hkv = 2, Sq = 1, Skv = 1500, D = 128; outputs o, lse; "
     "layout q: bshd, k: paged(page = 16), v: paged(page = 16), o: bshd; lengths kv = [1490, 0, "
     "37];"},
    {"PagesOf1WithASink",
     {"native"},
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 3, Skv = 300, D = 256; dtype f16; sink 0.5; "
     "outputs o, lse, lse_without_sink; "
     "layout q: bshd, k: paged(page = 1), v: paged(page = 1), o: bshd; lengths kv = [290, 0];"},
    {"PackedRowsWithPagesOf64",
     {"native", "composite"},
     "dims B = 3, Hq = 4, Hkv = 2, Sq = 70, Skv = 512, D = 64; dtype f16; align bottom_right; "
     "layout q: thd, k: paged(page = 64, tables = 2), v: paged(page = 64, tables = 2), o: thd; "
     "mask q_idx >= kv_idx; lengths q = [70, 0, 9], kv = [393, 70, 9]; outputs o, lse;"},
    {"AWindowOverPagesOf128",
     {"native", "composite"},
     "dims B = 2, Hq = 2, Hkv = 1, Sq = 20, Skv = 640, D = 64; align bottom_right; "
     "layout q: bshd, k: paged(page = 128), v: paged(page = 128), o: bshd; "
     "mask q_idx >= kv_idx && q_idx - kv_idx < 100; lengths kv = [513, 20]; outputs o, max;"},
    {"LatentsInPagesOf64",
     {"native"},
     "dims B = 2, Hq = 16, Hkv = 1, Sq = 1, Skv = 300, Dqk = 576, Dv = 512; outputs o, lse; "
     "layout q: bshd, k: paged(page = 64), v: paged(page = 64), o: bshd; lengths kv = [100, 1];"},
    {"PagesOf256In8Bits",
     {"native"},
     "dims B = 2, Hq = 4, Hkv = 1, Sq = 2, Skv = 1100, D = 128; dtype e4m3; "
     "quantize per_tensor, o: bf16, descale_q = 0.75, descale_k = 1.5, descale_v = 0.5, "
     "scale_s = 256, descale_s = 1 / 256; outputs o, lse; "
     "layout q: bshd, k: paged(page = 256), v: paged(page = 256), o: bshd; lengths kv = [600, 0];"},
    {"PagesOf12RowByRow",
     {"native"},
     "dims B = 2, Hq = 2, Hkv = 2, Sq = 70, Skv = 150, D = 64; outputs o, lse; "
     "score 30 * tanh(score / 30); "
     "layout q: bshd, k: paged(page = 12), v: paged(page = 5), o: bshd; lengths kv = [140, 3];"},
};

class HostUnused : public ::testing::TestWithParam<Case> {};

TEST_P(HostUnused, MayBeAnything) {
  const ir::Attention attention = attention_of("attention f { " + GetParam().clauses + " }");
  std::vector<Pair> pairs;
  for (const char* strategy : GetParam().strategies) {
    const auto program = driver::lower(attention, strategy, plan::Direction::forward);
    ASSERT_TRUE(program.ok()) << strategy << ": " << program.error().to_text();
    for (const tools::Unused unused : {tools::Unused::finite, tools::Unused::anything})
      pairs.push_back({strategy, *program, {}, gpu::Order::early_copies, unused});
  }
  const reference::Inputs inputs =
      tools::make_inputs(attention, {}, tools::Missing::pattern).value().values;
  const tools::Outputs expected = tools::run_reference(attention, inputs, {}).value();
  const auto all = outputs_of(pairs, inputs);
  ASSERT_TRUE(all.ok()) << all.error().to_text();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (const tools::Comparison& each :
         tools::compare((*all)[i], expected, tools::Types(attention)))
      EXPECT_TRUE(each.agrees()) << pairs[i].lowering << ": " << each.name << ": " << each.why;
    if (pairs[i].unused == tools::Unused::finite) continue;
    for (const auto& [name, tensor] : (*all)[i])
      EXPECT_EQ(tensor.values, (*all)[i - 1].at(name).values) << pairs[i].lowering << ": " << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, HostUnused, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& given) {
                           return std::string(given.param.name);
                         });

}  // namespace
}  // namespace attn::host::unused_tests
