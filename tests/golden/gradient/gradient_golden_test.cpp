// The derivatives of each NAME.attn in this folder, in the syntax of specs: NAME.expected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "compiler/ast/parse.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/sema/analyze.h"
#include "tests/support/golden.h"

namespace attn::gradient {
namespace {

constexpr char kFolder[] = "tests/golden/gradient/";

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / kFolder)) {
    if (entry.path().extension() == ".attn") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string gathers_text(const Derivatives& derivatives, std::string_view cotangent,
                         const std::vector<Gather>& gathers) {
  std::string text;
  for (const Gather& gather : gathers) {
    text += fmt::format("d {} += {} * ({})\n", to_source(derivatives.attention, gather.load),
                        cotangent, to_source(derivatives.attention, gather.local));
  }
  return text;
}

std::string text_of(const Derivatives& derivatives) {
  const ir::Attention& attention = derivatives.attention;
  std::string text = fmt::format("score'  {}\nby s    {}\n", to_source(attention, attention.score),
                                 to_source(attention, derivatives.score));
  if (attention.sink) text += fmt::format("sink    {}\n", to_source(attention, *attention.sink));
  for (const TensorGradient& tensor : derivatives.tensors) {
    text += fmt::format("\n{}\n", tensor.tensor);
    text += gathers_text(derivatives, "dS'", tensor.score);
    text += gathers_text(derivatives, "dZ", tensor.sink);
  }
  return text;
}

class GradientGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(GradientGolden, Derivatives) {
  const std::string path = kFolder + GetParam();
  const support::Source source(GetParam(), attn::testing::read_source_file(path + ".attn"));
  diag::Sink sink(source);
  const auto spec = ast::parse(source, sink);
  ASSERT_TRUE(spec.has_value()) << diag::to_text(sink);
  const auto attention = sema::analyze(*spec, {}, sink);
  ASSERT_TRUE(attention.has_value()) << diag::to_text(sink);
  const Derivatives derivatives = differentiate(rewrite::simplify(*attention));
  ASSERT_TRUE(ir::verify(derivatives.attention).ok());
  attn::testing::expect_golden(path + ".expected", text_of(derivatives));
}

INSTANTIATE_TEST_SUITE_P(Files, GradientGolden, ::testing::ValuesIn(case_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attn::gradient
