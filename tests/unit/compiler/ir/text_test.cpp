#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "compiler/ir/attention.h"
#include "tests/unit/compiler/ir/random_attention.h"
#include "tests/unit/compiler/ir/sample.h"

namespace attn::ir {
namespace {

using ::testing::HasSubstr;

std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kSample);
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

void expect_error(const std::string& text, std::string_view message, int line) {
  const Result<Attention> parsed = parse(text);
  ASSERT_FALSE(parsed.ok()) << message;
  EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(parsed.error().message, HasSubstr(std::string(message)));
  EXPECT_EQ(nlohmann::json::parse(parsed.error().payload)["line"], line);
}

TEST(Text, RoundTrips) {
  const Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), kSample);
  EXPECT_TRUE(verify(*parsed).ok()) << verify(*parsed).error().message;
  EXPECT_FALSE(parsed->dims.get(Dim::Sq));
  EXPECT_EQ(parsed->dims[Dim::Skv], 129);
  EXPECT_EQ(parsed->layouts.find("v")->second.strides[2], 512);
  EXPECT_EQ(parsed->align, Align::bottom_right);
  EXPECT_TRUE(parsed->wants_lse);
}

TEST(Text, PartialRoundTrips) {
  const std::string text = replaced("  outputs o lse\n", "  outputs o lse\n  partial\n");
  const auto parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_text();
  EXPECT_TRUE(parsed->partial);
  EXPECT_EQ(to_text(*parsed), text);
}

TEST(Text, SigmoidRoundTripsAndSoftmaxIsNotPrinted) {
  const std::string text = replaced("  outputs o lse\n", "  normalize sigmoid\n  outputs o\n");
  const Result<Attention> parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed->is_sigmoid());
  EXPECT_EQ(to_text(*parsed), text);
  EXPECT_TRUE(verify(*parsed).ok()) << verify(*parsed).error().message;
  expect_error(replaced("  outputs", "  normalize relu\n  outputs"), "sigmoid", 32);
}

TEST(Text, EpiloguesRoundTrip) {
  Attention attention = parse(kSample).value();
  Dag& dag = attention.dag;
  const ExprId column = dag.add(Op::to_real_, {dag.leaf(Op::depth_)});
  attention.epilogue = dag.add(Op::mul_, {dag.leaf(Op::output_), column});
  attention.wants_o_inner = true;
  const std::string text = to_text(attention);
  EXPECT_NE(text.find("\n  epilogue %"), std::string::npos) << text;
  ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
  EXPECT_TRUE(is_same(*parse(text), attention));
  EXPECT_EQ(to_source(attention, *attention.epilogue), "o * d_idx");
}

TEST(Text, WeightsByExpressionsRoundTrip) {
  const std::string linear = replaced("  outputs o lse\n", "  normalize linear\n  outputs o\n");
  ASSERT_TRUE(parse(linear).ok()) << parse(linear).error().message;
  EXPECT_TRUE(parse(linear)->is_linear());
  EXPECT_EQ(to_text(*parse(linear)), linear);
  Attention divided = parse(kSample).value();
  const ExprId term = divided.dag.leaf(Op::score_);
  divided.normalize = Normalize::quotient;
  divided.quotient = Quotient{term, divided.dag.add(Op::abs_, {term}), true};
  const std::string text = to_text(divided);
  EXPECT_NE(text.find(" exponential\n"), std::string::npos) << text;
  ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
  EXPECT_EQ(to_text(*parse(text)), text);
  EXPECT_TRUE(is_same(*parse(text), *parse(to_text(divided))));
}

TEST(Text, ProloguesRoundTrip) {
  Attention rows = parse(kSample).value();
  Dag& dag = rows.dag;
  const auto element = [&dag](const char* tensor, Op row) {
    const ExprId at[] = {dag.leaf(Op::batch_), dag.leaf(Op::head_), dag.leaf(row),
                         dag.leaf(Op::depth_)};
    return dag.add_symbol(Op::load_, tensor, Type::real, at);
  };
  const ExprId of_q = element("q", Op::row_), of_k = element("k", Op::column_);
  const ExprId sum = dag.add(Op::row_sum_, {}, std::int64_t{0}, {});
  rows.prologue_q = Prologue{dag.add(Op::mul_, {of_q, sum}), {dag.add(Op::abs_, {of_q})}};
  rows.prologue_k = Prologue{dag.add(Op::neg_, {of_k})};
  ASSERT_TRUE(verify(rows).ok()) << verify(rows).error().message;
  const std::string text = to_text(rows);
  EXPECT_THAT(text, HasSubstr("  prologue q %"));
  EXPECT_THAT(text, HasSubstr("  prologue k %"));
  ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
  EXPECT_EQ(to_text(*parse(text)), text);
  EXPECT_TRUE(verify(*parse(text)).ok());
  Attention wrong = rows;
  wrong.prologue_q->value = of_k;
  EXPECT_FALSE(verify(wrong).ok());
  wrong = rows;
  wrong.prologue_k->value = sum;  // of which there is none
  EXPECT_FALSE(verify(wrong).ok());
  wrong = rows;
  wrong.score = of_q;
  EXPECT_FALSE(verify(wrong).ok());
}

TEST(Text, LatentCachesRoundTrip) {
  Attention cache = parse(kSample).value();
  Dag& dag = cache.dag;
  const ExprId sizes[] = {dag.integer(2), dag.dim("Sq"), dag.integer(16)};
  cache.tensors.push_back({"chosen", DType::i32, {sizes[0], sizes[1], sizes[2]}, {}});
  cache.tensors.push_back({"count", DType::i32, {sizes[0], sizes[1]}, {}});
  cache.gather = Gather{"chosen"};
  cache.values_of_keys = true;
  cache.layouts["v"] = cache.layouts["k"];
  for (const char* counts : {"", "count"}) {
    cache.gather->counts = counts;
    ASSERT_TRUE(verify(cache).ok()) << verify(cache).error().message;
    const std::string text = to_text(cache);
    EXPECT_THAT(text, HasSubstr("  gather chosen"));
    EXPECT_THAT(text, HasSubstr("  values_of_keys\n"));
    ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
    EXPECT_EQ(to_text(*parse(text)), text);
    EXPECT_TRUE(is_same(*parse(text), *parse(to_text(cache))));
  }
  for (const auto& change : std::vector<std::function<void(Attention&)>>{
           [](Attention& a) { a.gather->keys = "doc"; },
           [](Attention& a) { a.gather->counts = "chosen"; },
           [](Attention& a) { a.gradients = {"q"}; }, [](Attention& a) { a.layouts["v"] = {}; },
           [](Attention& a) { a.dropout = Dropout{}; },
           [](Attention& a) { a.dims.set(Dim::Dv, 300); }}) {
    Attention wrong = cache;
    change(wrong);
    EXPECT_FALSE(verify(wrong).ok());
  }
}

TEST(Text, BranchesRoundTrip) {
  Attention whole = parse(kSample).value();
  Dag& dag = whole.dag;
  Branch branch{whole, {"x_o", whole.dtype, {}, {}}, {}};
  branch.attention.branch = "x";
  branch.attention.score = branch.attention.dag.leaf(Op::score_);
  for (const Dim dim : {Dim::B, Dim::Hq, Dim::Sq, Dim::Dv}) {
    const auto size = whole.dims.get(dim);
    branch.o.extents.push_back(size ? dag.integer(*size) : dag.dim(std::string(to_string(dim))));
  }
  const ExprId at[] = {dag.leaf(Op::batch_), dag.leaf(Op::head_), dag.leaf(Op::row_),
                       dag.leaf(Op::depth_)};
  whole.branch = "y";
  whole.branches = {branch};
  whole.epilogue =
      dag.add(Op::sub_, {dag.leaf(Op::output_), dag.add_symbol(Op::load_, "x_o", Type::real, at)});
  ASSERT_TRUE(verify(whole).ok()) << verify(whole).error().message;
  const std::string text = to_text(whole);
  EXPECT_THAT(text, HasSubstr("  branch x: bf16[%"));
  ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
  EXPECT_EQ(to_text(*parse(text)), text);
  EXPECT_TRUE(verify(*parse(text)).ok());
  EXPECT_FALSE(parse(text + "x").ok());
  EXPECT_FALSE(parse(text.substr(0, text.find("\n}\n") + 3)).ok());  // the branch is missing
  Attention wrong = whole;
  wrong.branches[0].inputs["k"] = "nothing";
  EXPECT_FALSE(verify(wrong).ok());
  wrong = whole;
  wrong.epilogue.reset();
  EXPECT_FALSE(verify(wrong).ok());
}

TEST(Text, SumsRoundTrip) {
  Attention summed = parse(kSample).value();
  const ExprId keys = summed.dag.integer(129);
  KeySum sum{{"c", DType::f32, {summed.dag.integer(2), keys}, {}}, 0};
  sum.value = summed.dag.add(Op::to_real_, {summed.dag.leaf(Op::column_)});
  sum.of_batch = sum.tensor.learned = true;
  summed.sums = {sum};
  summed.tensors[0].computed = true;
  ASSERT_TRUE(verify(summed).ok()) << verify(summed).error().message;
  const std::string text = to_text(summed);
  EXPECT_THAT(text, HasSubstr("  sum c: f32[%"));
  EXPECT_THAT(text, HasSubstr("] b learned = %"));
  EXPECT_THAT(text, HasSubstr("] computed"));
  ASSERT_TRUE(parse(text).ok()) << parse(text).error().message;
  EXPECT_EQ(to_text(*parse(text)), text);
  EXPECT_TRUE(is_same(*parse(text), summed) || parse(text)->sums.size() == 1);
  const std::size_t at = text.find("learned = %") + std::string_view("learned = %").size();
  EXPECT_FALSE(parse(text.substr(0, at) + "999" + text.substr(text.find('\n', at))).ok());
}

TEST(Text, GradientsThroughLseRoundTrip) {
  const std::string text = replaced("  outputs o lse\n", "  outputs o lse\n  grad q v lse\n");
  const Result<Attention> parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->gradients, (std::vector<std::string>{"q", "v"}));
  EXPECT_TRUE(parsed->reads_d_lse);
  EXPECT_EQ(to_text(*parsed), text);
  EXPECT_TRUE(verify(*parsed).ok());
  Attention alone = *parsed;
  alone.gradients.clear();
  EXPECT_FALSE(verify(alone).ok());
}

TEST(Text, QuantizeRoundTrips) {
  const std::string line = "  quantize o=bf16 do=e5m2 gradients=e4m3\n";
  const std::string text = replaced("  outputs o lse\n", line + "  outputs o lse amax_s amax_o\n");
  const Result<Attention> parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), text);
  EXPECT_EQ(parsed->dtype_of("o"), DType::bf16);
  EXPECT_EQ(parsed->dtype_of("do"), DType::e5m2);
  EXPECT_EQ(parsed->dtype_of("dk"), DType::e4m3);
  EXPECT_TRUE(parsed->wants_amax_s && parsed->wants_amax_o);
  expect_error(replaced("  outputs", "  quantize o=e4m3\n  outputs"), "do", 32);
}

TEST(Text, ScalesOfBlocksRoundTrip) {
  const std::string line = "  quantize mxfp8 o=f16 do=e5m2 gradients=bf16\n";
  const std::string text = replaced("  outputs", line + "  outputs");
  const Result<Attention> parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), text);
  EXPECT_TRUE(parsed->is_mxfp8());
  EXPECT_EQ(parsed->dtype_of("o"), DType::f16);
}

TEST(Text, CachesRoundTrip) {
  const std::string text = replaced("  outputs", "  cache batch_head k=e5m2 v=i8\n  outputs");
  const Result<Attention> parsed = parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_text(*parsed), text);
  EXPECT_EQ(parsed->dtype_of("k"), DType::e5m2);
  EXPECT_EQ(parsed->dtype_of("v"), DType::i8);
  EXPECT_EQ(parsed->dtype_of("o"), parsed->dtype);
  expect_error(replaced("  outputs", "  cache heads k=e4m3 v=e4m3\n  outputs"), "heads", 32);
}

TEST(Text, UnreachableNodesAreNotPrinted) {
  Result<Attention> parsed = parse(kSample);
  ASSERT_TRUE(parsed.ok());
  parsed->dag.integer(12345);
  EXPECT_EQ(to_text(*parsed), kSample);
}

TEST(Text, RandomAttentionsRoundTrip) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const std::string text = to_text(testing::RandomAttention(seed, 10).make());
    const Result<Attention> parsed = parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message << "\n" << text;
    ASSERT_EQ(to_text(*parsed), text);
    ASSERT_TRUE(verify(*parsed).ok()) << verify(*parsed).error().message;
  }
}

// What reads back is right or refused, whatever happened to the text.
TEST(Text, DamagedTextIsRefusedOrStillRoundTrips) {
  std::mt19937 random(1);
  const auto pick = [&](std::size_t count) { return random() % count; };
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text(kSample);
    const char noise[] = "%0123456789=:,[]{}? \n-abz";
    for (std::size_t n = 1 + pick(3); n > 0; --n) {
      const std::size_t place = pick(text.size());
      if (pick(2) == 0) text.erase(place, 1 + pick(4));
      if (pick(2) == 0) text.insert(place, 1, noise[pick(sizeof(noise) - 1)]);
    }
    const Result<Attention> parsed = parse(text);
    refused += parsed.ok() ? 0 : 1;
    if (!parsed.ok() || !verify(*parsed).ok()) continue;
    const Result<Attention> again = parse(to_text(*parsed));
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
    ASSERT_EQ(to_text(*again), to_text(*parsed));
  }
  EXPECT_GT(refused, 1000);
}

TEST(Text, ErrorsNameTheLine) {
  expect_error(replaced("dtype bf16", "dtype b16"), "'b16' is not a dtype", 3);
  expect_error(replaced("Sq=?", "S=?"), "'S' is not a dimension", 2);
  expect_error(replaced("k=bhsd", "k=hbsd"), "'hbsd' is not a layout", 4);
  expect_error(replaced("128,512", "128;512"), "expected ','", 4);
  expect_error(replaced("bottom_right", "middle"), "'middle' is not an alignment", 5);
  expect_error(replaced("%3: int", "%4: int"), "expected node %3", 12);
  expect_error(replaced("%3: int", "%3: real"), "the type is int", 12);
  expect_error(replaced("%3: int = head", "%3: int = batch"), "was defined before", 12);
  expect_error(replaced("= head", "= haed"), "'haed' is not an op", 12);
  expect_error(replaced("tanh %10", "tanh %11"), "%11 is not defined yet", 20);
  expect_error(replaced("tanh %10", "tanh %10, %8"), "takes 1 operands", 20);
  expect_error(replaced("tanh %10", "tanh %5"), "operand types do not fit tanh", 20);
  expect_error(replaced("const_int 129", "const_int 1e9"), "'1e9' is not an integer", 10);
  expect_error(replaced("load doc, %2, %5", "load dog, %2, %5"), "'dog' is not declared", 23);
  expect_error(replaced("load doc, %2, %5", "load doc, %2, %8"), "not an int", 23);
  expect_error(replaced("tensor doc: i32[%0", "tensor doc: i32[%99"), "%99 is not defined", 33);
  expect_error(replaced("  scale %7\n", ""), "scale or score is missing", 32);
  expect_error(replaced("scale %7", "scale %7 %7"), "text after the end", 28);
  expect_error(replaced("scale %7", "scale %7\n  scale %7"), "given twice", 29);
  expect_error(replaced("lse\n}\n", "lse\n"), "closing '}' is missing", 32);
  expect_error(replaced("lse\n}\n", "lse\n}\nx\n"), "text after the closing", 34);
  expect_error("", "closing '}' is missing", 0);
}

}  // namespace
}  // namespace attn::ir
