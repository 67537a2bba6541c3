// Runs every shipped spec, lowered to fused kernels, on the host, with all rewrites and without
// each of them, and compares outputs and gradients with the reference. not_run.txt lists
// exceptions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"
#include "tests/support/golden.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host {
namespace {

constexpr std::int64_t kLongest = 96;  // rows and columns; small, since dense evaluation is slow

std::vector<std::string> spec_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTN_SOURCE_DIR) / "specs")) {
    if (entry.path().extension() == ".attn") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

// Names of the specs in not_run.txt with this entry: "both" or "backward".
std::set<std::string> not_run(std::string_view what) {
  std::set<std::string> names;
  std::istringstream lines(attn::testing::read_source_file("tests/host/not_run.txt"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, of;
    words >> name >> of;
    if (!name.starts_with('#') && of == what) names.insert(name);
  }
  return names;
}

Result<plan::Program> lowered(const ir::Attention& attention, const std::string& lowering,
                              plan::Direction direction, target::Rewrites made = {}) {
  return driver::lower(attention, lowering, direction, made);
}

// Capability::pages_of_any_number_of_keys
bool has_composite(const ir::Attention& attention) {
  const bool paged = attention.layouts.find("v")->second.kind == ir::LayoutKind::paged;
  return !paged || attention.dims[ir::Dim::Sq] == 1 || attention.dims[ir::Dim::Skv] % 128 == 0;
}

class HostSpecs : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return ATTN_SOURCE_DIR "/specs/" + GetParam() + ".attn"; }
  void expect_reference_of(Turns turns) const;
};

// Adds the programs of a lowering. Composite always applies; the others only to some specs.
void add_pair(Subject& subject, const std::string& lowering, bool expects_backward,
              target::Rewrites made = {}) {
  const bool required = lowering == "composite";
  auto forward = lowered(subject.attention, lowering, plan::Direction::forward, made);
  auto backward = lowered(subject.attention, lowering, plan::Direction::backward, made);
  if (required) {
    ASSERT_TRUE(forward.ok()) << forward.error().to_text();
    ASSERT_EQ(backward.ok(), expects_backward) << "not_run.txt does not match";
  }
  if (!forward.ok() && !backward.ok()) return;
  // A backward works with any forward.
  if (!forward.ok()) {
    forward = lowered(subject.attention, "composite", plan::Direction::forward);
    ASSERT_TRUE(forward.ok()) << forward.error().to_text();
  }
  Pair pair{lowering, std::move(*forward), {}};
  if (backward.ok()) pair.backward = std::move(*backward);
  subject.pairs.push_back(std::move(pair));
}

std::string text_of(const Pair& pair) {
  return plan::canonical_text(pair.forward) +
         (pair.backward ? plan::canonical_text(*pair.backward) : "");
}

// Adds the programs of a lowering without a rewrite, unless they are the same as other programs.
void add_pair_without(Subject& subject, const std::string& lowering, std::string_view rewrite,
                      bool expects_backward) {
  const std::size_t before = subject.pairs.size();
  add_pair(subject, lowering, expects_backward, target::without(rewrite));
  if (subject.pairs.size() == before) return;
  Pair& last = subject.pairs.back();
  last.lowering += fmt::format(" without {}", rewrite);
  const auto same = [&](const Pair& other) { return text_of(other) == text_of(last); };
  if (std::any_of(subject.pairs.begin(), subject.pairs.end() - 1, same)) subject.pairs.pop_back();
}

// At one size, in turns, or at all.
void HostSpecs::expect_reference_of(Turns turns) const {
  const tools::SpecOutcome spec = tools::read_spec(path(), {}, tools::Format::text);
  ASSERT_TRUE(spec.spec.has_value());
  const std::optional<ir::Dropout>& dropout = spec.spec->attention.dropout;
  const bool is_random = dropout && !dropout->keep;
  const ir::Attention& attention = spec.spec->attention;
  const bool is_not_run = is_random || !attention.is_softmax() || attention.epilogue ||
                          attention.quantize || attention.cache || attention.values_of_keys ||
                          attention.gather;
  ASSERT_EQ(not_run("both").contains(GetParam()), is_not_run) << "not_run.txt";
  if (is_not_run) GTEST_SKIP();
  const bool has_backward = !not_run("backward").contains(GetParam());
  std::vector<std::pair<std::string, ir::Attention>> sized;
  for (const tools::Shape& shape : tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                                                    tools::ShapeSet::all, kLongest)) {
    const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
    ASSERT_TRUE(bound.spec || shape.name != "scaled");
    if (!bound.spec) continue;  // the spec does not support these sizes
    if (has_composite(bound.spec->attention)) sized.emplace_back(shape.name, bound.spec->attention);
  }
  if (turns == Turns::one && !sized.empty()) sized = {sized[turn_of(GetParam()) % sized.size()]};
  std::vector<Subject> subjects;
  for (const auto& [size, attention_of_size] : sized) {
    Subject subject{GetParam() + ", " + size, driver::training_forward(attention_of_size), {}};
    for (const std::string& lowering : strategies_on_host()) {
      add_pair(subject, lowering, has_backward);
    }
    for (const target::Rewrite& rewrite : target::rewrites()) {
      for (const std::string& lowering : strategies_on_host()) {
        add_pair_without(subject, lowering, rewrite.name, has_backward);
      }
    }
    subjects.push_back(std::move(subject));
  }
  expect_reference(subjects);
}

TEST_P(HostSpecs, AreTheReference) { expect_reference_of(Turns::one); }

class NightlyHostSpecs : public HostSpecs {};
TEST_P(NightlyHostSpecs, AreTheReference) { expect_reference_of(Turns::all); }

TEST(HostSpecsList, NamesSpecs) {
  const std::vector<std::string> names = spec_names();
  for (const char* what : {"both", "backward"}) {
    for (const std::string& name : not_run(what)) {
      EXPECT_TRUE(std::ranges::binary_search(names, name)) << name;
    }
  }
}

// Lists which lowerings apply to a spec at the sizes above, and so are compared.
ir::Attention scaled(const std::string& name) {
  const tools::SpecOutcome spec =
      tools::read_spec(ATTN_SOURCE_DIR "/specs/" + name + ".attn", {}, tools::Format::text);
  const tools::Shape shape = tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                                              tools::ShapeSet::scaled, kLongest)[0];
  return tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text)
      .spec->attention;
}

std::string forms_of(const std::string& name) {
  const ir::Attention attention = scaled(name);
  std::string text = name + ":";
  for (const std::string& lowering : strategies_on_host()) {
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
      if (!lowered(attention, lowering, direction).ok()) continue;
      text += fmt::format("  {} {}", lowering, plan::to_string(direction));
    }
  }
  return text + "\n";
}

// Lists the specs whose composite program a rewrite changes; only these test the rewrite.
std::string changed_by(const target::Rewrite& rewrite) {
  std::string text = fmt::format("{}:", rewrite.name);
  for (const std::string& name : spec_names()) {
    const ir::Attention attention = scaled(name);
    for (const auto direction : {plan::Direction::forward, plan::Direction::backward}) {
      const auto with = lowered(attention, "composite", direction);
      const auto without =
          lowered(attention, "composite", direction, target::without(rewrite.name));
      EXPECT_EQ(with.ok(), without.ok()) << name << " without " << rewrite.name;
      if (!with.ok() || plan::canonical_text(*with) == plan::canonical_text(*without)) continue;
      text += fmt::format("  {} {}", name, plan::to_string(direction));
    }
  }
  return text + "\n";
}

TEST(HostSpecsList, FormsOfSpecs) {
  std::string text;
  for (const std::string& name : spec_names()) text += forms_of(name);
  attn::testing::expect_golden("tests/host/forms.expected", text);
}

TEST(HostSpecsList, ChangedByRewrites) {
  std::string text;
  for (const target::Rewrite& rewrite : target::rewrites()) text += changed_by(rewrite);
  attn::testing::expect_golden("tests/host/rewrites.expected", text);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& spec) { return spec.param; }
INSTANTIATE_TEST_SUITE_P(Library, HostSpecs, ::testing::ValuesIn(spec_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Library, NightlyHostSpecs, ::testing::ValuesIn(spec_names()), name_of);

}  // namespace
}  // namespace attn::host
