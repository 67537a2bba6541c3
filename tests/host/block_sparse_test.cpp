// Runs masks lowered to lists of pages on the host, and compares the outputs with the reference:
// lists of different lengths and empty ones, per head, per batch or shared, in every layout, static
// or computed at execute, with and without a remaining mask.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "runtime/base/check.h"
#include "tests/host/attention.h"
#include "tests/host/shapes_of_file.h"
#include "tests/support/golden.h"
#include "tools/shapes.h"
#include "tools/spec.h"

namespace attn::host::block_sparse_tests {
namespace {

struct Case {
  const char* name;
  const char* clauses;
  const char* dims = "B = 2, Hq = 4, Hkv = 2, Sq = 256, Skv = 384, D = 16";
};

constexpr const char* kSquare = "B = 2, Hq = 2, Hkv = 1, Sq = 256, Skv = Sq, D = 8";
constexpr const char* kSmall = "B = 2, Hq = 2, Hkv = 2, Sq = 192, Skv = 256, D = 8";

constexpr Case kCases[] = {
    {"map", "tensor m: bool[2, 3] = (i0 + i1) % 2 == 0; mask m[q_idx // 128, kv_idx // 128];"},
    {"map_by_head",
     "tensor m: bool[Hq, 4, 6] = (i0 * i1 + i2) % 4 == 1 && i1 != 2;"
     "mask m[h, q_idx // 64, kv_idx // 64];"},
    {"map_by_head_bhsd",
     "layout bhsd; tensor m: i32[Hq, 4, 6] = i0 * i1 % 3 - i2 % 2;"
     "mask m[h, q_idx // 64, kv_idx // 64] > 0;"},
    {"map_by_batch_and_head",
     "tensor m: bool[B, Hq, 4, 6] = (i0 + i1 + i2 * i3) % 5 < 2;"
     "mask m[b, h, q_idx // 64, kv_idx // 64]; outputs o, lse, max, sum_exp;"},
    {"map_by_batch",
     "layout bhsd; tensor m: bool[B, 4, 3] = (i0 + i1) % 3 == i2;"
     "mask m[b, q_idx // 64, kv_idx // 128]; outputs o, lse, max, sum_exp;"},
    {"nothing", "tensor m: bool[4, 6] = i0 == 9; mask m[q_idx // 64, kv_idx // 64];"},
    {"everything", "tensor m: bool[4, 6] = i0 < 9; mask m[q_idx // 64, kv_idx // 64];"},
    {"map_with_causal",
     "align bottom_right; tensor m: bool[Hq, 4, 6] = (i0 + i1 + i2) % 2 == 0;"
     "mask m[h, q_raw // 64, kv_idx // 64] && q_idx >= kv_idx;"},
    {"sink",
     "tensor m: bool[4, 6] = (i0 + 1) * i1 % 4 == 3 && i0 != 1; tensor s: f32[Hq];"
     "mask m[q_idx // 64, kv_idx // 64]; sink s[h];"},
    {"window", "mask abs(q_idx - kv_idx) < 40; outputs o, lse, max, sum_exp;"},
    {"sum_alone", "mask abs(q_idx - kv_idx) < 40; outputs o, sum_exp;"},
    {"blocks_of_indices", "mask abs(q_idx // 64 - kv_idx // 64) <= 1 && h != kv_idx // 128;"},
    {"reversed", "mask (255 - q_idx) // 64 == kv_idx // 64;"},
    {"neighbourhood",
     "mask abs(q_idx // 16 - kv_idx // 16) <= 2 && abs(q_idx % 16 - kv_idx % 16) <= 3;", kSquare},
    {"segments",
     "tensor doc: i32[B, Sq] = i1 * (i0 + 2) // 200;"
     "mask doc[b, q_idx] == doc[b, kv_idx] && q_idx >= kv_idx;",
     kSquare},
    {"unordered_documents",
     "tensor doc: i32[B, Sq] = (i1 // 32 + i0) % 3 - 1;"
     "mask doc[b, q_idx] == doc[b, kv_idx] && doc[b, q_idx] >= 0;",
     kSquare},
    {"global_tokens",
     "tensor g: bool[B, Skv] = i1 == 5 * i0; mask abs(q_idx - kv_idx) < 30 || g[b, q_idx] || g[b, "
     "kv_idx];",
     kSquare},
    {"top_tiles",
     "tensor top: i32[B, Hq, 4, 2] = (i0 + i1 + i2 + i3 * i3) % 4;"
     "mask top[b, h, q_idx // 64, 0] == kv_idx // 64 || top[b, h, q_idx // 64, 1] == kv_idx // "
     "64;"},
    {"param", "param w: i32; mask abs(q_idx - kv_idx) < 10 * w;"},
    {"positions",
     "tensor slopes: f32[Hq] = 0.1 * i0; tensor t: f32[Hq, Sq + Skv]; tensor u: f32[B, Skv];"
     "score score + slopes[h] * (kv_idx - q_idx) + t[h, kv_idx - q_idx + Sq] + u[b, kv_idx];"
     "mask (q_idx // 64 + kv_idx // 64) % 2 == 0;"},
    {"bias",
     "tensor bias: f32[B, Hq, Sq, Skv]; score score + bias[b, h, q_idx, kv_idx];"
     "mask q_idx // 64 == kv_idx // 64 || kv_idx < 64;"},
    {"kept",
     "dropout 0.25, (q_idx + 3 * kv_idx + h) % 4 != 0; mask q_idx // 128 == kv_idx // 128;"},
    {"tiles_of_64", "mask q_idx // 64 == kv_idx // 64 || kv_idx >= 250;", kSmall},
    {"packed_qkv", "layout packed_qkv; mask abs(q_idx - kv_idx) < 70;", kSquare},
    {"packed_kv", "layout packed_kv; mask abs(q_idx - kv_idx) < 70;"},
    {"sbhd", "layout sbhd; mask abs(q_idx - kv_idx) < 70;"},
    {"sbhd_by_head",
     "layout sbhd; tensor m: bool[Hq, 4, 6] = (i0 + i1 + i2) % 3 == 0;"
     "mask m[h, q_idx // 64, kv_idx // 64];"},
    {"mixed_layouts",
     "layout q: bhsd, k: bshd, v: sbhd, o: bshd; tensor m: bool[Hq, 4, 6] = (i0 * i2 + i1) % 3 == "
     "0;"
     "mask m[h, q_idx // 64, kv_idx // 64];"},
    {"head_dimensions", "mask abs(q_idx - kv_idx) < 70;",
     "B = 2, Hq = 2, Hkv = 1, Sq = 256, Skv = 384, Dqk = 24, Dv = 16"},
    {"one_batch_one_head", "mask abs(q_idx - kv_idx) < 70;",
     "B = 1, Hq = 1, Hkv = 1, Sq = 128, Skv = 512, D = 8"},
};

Subject subject_of(const Case& of) {
  const std::string outputs =
      std::string(of.clauses).find("outputs") == std::string::npos ? " outputs o, lse;" : "";
  const std::string text = std::string("attention ") + of.name + " { dims " + of.dims + "; " +
                           of.clauses + outputs + " }";
  const support::Source source(of.name, text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  ATTN_CHECK(attention.has_value(), text + '\n' + diag::to_text(sink));
  Subject subject{text, *attention, {}};
  auto program = driver::lower(*attention, "block_sparse", plan::Direction::forward);
  EXPECT_TRUE(program.ok()) << text << '\n' << program.error().to_text();
  if (program.ok()) subject.pairs.push_back({"block_sparse", std::move(*program), {}});
  return subject;
}

TEST(HostPages, OfCasesAreTheReference) {
  std::vector<Subject> subjects;
  for (const Case& each : kCases) subjects.push_back(subject_of(each));
  expect_reference(subjects);
}

// The library's specs that can be lowered to page lists, at sizes that have pages. pages.expected
// lists them.
constexpr std::int64_t kLongest = 256;

std::optional<Subject> subject_of(const std::filesystem::path& path) {
  const tools::SpecOutcome spec = tools::read_spec(path.string(), {}, tools::Format::text);
  ATTN_CHECK(spec.spec.has_value(), path.string());
  const tools::Shape shape = tools::shapes_of(*spec.spec->source, spec.spec->attention, {},
                                              tools::ShapeSet::scaled, kLongest)[0];
  const auto bound = tools::analyze_spec(spec.spec->source, shape.bindings, tools::Format::text);
  ATTN_CHECK(bound.spec.has_value(), path.string());
  Subject subject{path.stem().string(), bound.spec->attention, {}};
  auto program = driver::lower(subject.attention, "block_sparse", plan::Direction::forward);
  if (!program.ok()) return std::nullopt;
  subject.pairs.push_back({"block_sparse", std::move(*program), {}});
  return subject;
}

// Every third of them, or all.
void expect_reference_of_specs(Turns turns) {
  std::size_t number = 0;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(ATTN_SOURCE_DIR "/specs")) {
    if (entry.path().extension() == ".attn") files.insert(entry.path());
  }
  std::vector<Subject> subjects;
  std::string names;
  for (const std::filesystem::path& file : files) {
    std::optional<Subject> subject = subject_of(file);
    if (!subject) continue;
    names += subject->text + "\n";
    const bool taken = turns == Turns::all || number++ % 3 == 0;
    if (taken) subjects.push_back(std::move(*subject));
  }
  attn::testing::expect_golden("tests/host/pages.expected", names);
  expect_reference(subjects);
}
TEST(HostPages, OfSpecsAreTheReference) { expect_reference_of_specs(Turns::one); }
TEST(NightlyHostPages, OfSpecsAreTheReference) { expect_reference_of_specs(Turns::all); }

}  // namespace
}  // namespace attn::host::block_sparse_tests
