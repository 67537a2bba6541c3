#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/ir/real_function.h"
#include "compiler/sema/operations.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::sema {
namespace {

namespace fs = std::filesystem;

// A folder with a spec's folder in it, and what may be imported.
class ImportedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attn_imports_" + std::to_string(getpid()));
    fs::create_directories(folder_ / "specs" / "lib");
    write("outside.attn", "fn mine() = q_idx >= kv_idx;");
    write("specs/lib/inside.attn", "import \"../beside.attn\";");
    write("specs/beside.attn", "fn mine() = q_idx >= kv_idx;");
  }
  void TearDown() override {
    unsetenv("ATTN_IMPORT_PATH");
    fs::remove_all(folder_);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  Codes import(const std::string& path) const {
    const support::Source source((folder_ / "specs" / "x.attn").string(),
                                 "import \"" + path + "\"; attention f { mask mine(); }");
    diag::Sink sink(source);
    const auto spec = ast::parse(source, sink);
    if (spec) (void)analyze(*spec, {}, sink);
    Codes codes;
    for (const diag::Diagnostic& d : sink.sorted()) codes.emplace_back(diag::id_of(d.code));
    return codes;
  }

  fs::path folder_;
};

TEST_F(ImportedFiles, StayBelowTheFolderOfTheSpec) {
  EXPECT_EQ(import("lib/inside.attn"), Codes{});  // which leads up, but not out
  EXPECT_EQ(import("../outside.attn"), Codes{"E0260"});
  EXPECT_EQ(import((folder_ / "outside.attn").string()), Codes{"E0260"});
  EXPECT_EQ(import("../nowhere.attn"), Codes{"E0260"});  // whether it exists is not said
  fs::create_symlink("../outside.attn", folder_ / "specs" / "link.attn");
  EXPECT_EQ(import("link.attn"), Codes{"E0260"});
}

// What is judged is what is opened, also where `..` stands behind a link.
TEST_F(ImportedFiles, AreTheOnesThatLinksLeadTo) {
  const fs::path specs = folder_ / "specs";
  fs::create_directories(specs / "a/b/c/d");
  fs::create_directory_symlink("a/b/c/d", specs / "down");
  write("specs/a/b/outside.attn", "fn other() = q_idx >= kv_idx;");
  EXPECT_EQ(import("down/../../outside.attn"), Codes{"E0203"});  // ../outside.attn has mine
  write("specs/a/b/outside.attn", "import \"../../beside.attn\";");
  EXPECT_EQ(import("down/../../outside.attn"), Codes{});
  fs::create_directory_symlink("..", specs / "up");
  EXPECT_EQ(import("up/outside.attn"), Codes{"E0260"});
  EXPECT_EQ(import("nowhere/../up/outside.attn"), Codes{"E0260"});
}

TEST_F(ImportedFiles, MayLeaveItWhereThatIsAskedFor) {
  setenv("ATTN_IMPORT_PATH", ("/nowhere:" + folder_.string()).c_str(), 1);
  EXPECT_EQ(import("../outside.attn"), Codes{});
  EXPECT_EQ(import((folder_ / "outside.attn").string()), Codes{});
}

TEST_F(ImportedFiles, AreFilesOfBoundedSize) {
  ASSERT_EQ(mkfifo((folder_ / "specs" / "pipe.attn").c_str(), 0600), 0);
  EXPECT_EQ(import("pipe.attn"), Codes{"E0209"});
  write("specs/large.attn", "fn mine() = q_idx >= kv_idx;" + std::string(300'000, ' '));
  EXPECT_EQ(import("large.attn"), Codes{"E0106"});
}

TEST(Functions, OfReals) {
  for (const ir::RealFunction& function : ir::real_functions()) {
    const ir::OpInfo& op = ir::info(function.op);
    const std::string call = std::string(op.name) + (op.operands == 1 ? "(score" : "(score, 1.0");
    EXPECT_EQ(score(call + ")"), call + ")");
    EXPECT_EQ(score(call + ", 1)"), "E0307");
    EXPECT_EQ(score(std::string(op.name) + "()"), "E0307");
  }
  EXPECT_EQ(score("sqrt(4)"), "sqrt(4.0)");
}

TEST(Functions, KeepIntegers) {
  EXPECT_EQ(mask("abs(q_idx - kv_idx) <= 3"), "abs(q_idx - kv_idx) <= 3");
  EXPECT_EQ(mask("min(q_idx, kv_idx, 3) == max(1, 2)"), "min(min(q_idx, kv_idx), 3) == max(1, 2)");
  EXPECT_EQ(mask("floor(q_idx) == ceil(kv_idx)"), "q_idx == kv_idx");
  EXPECT_EQ(mask("clamp(kv_idx, 0, 9) == 3"), "min(max(kv_idx, 0), 9) == 3");
  EXPECT_EQ(mask("relu(q_idx - 3) == 0"), "max(q_idx - 3, 0) == 0");
}

TEST(Functions, KeepReals) {
  EXPECT_EQ(score("floor(score)"), "floor(score)");
  EXPECT_EQ(score("clamp(score, -1, 1)"), "min(max(score, -1.0), 1.0)");
  EXPECT_EQ(score("relu(score)"), "max(score, 0.0)");
  EXPECT_EQ(score("max(score, 1)"), "max(score, 1.0)");
}

TEST(Functions, MadeOfOthers) {
  EXPECT_EQ(score("silu(score)"), "score * sigmoid(score)");
  EXPECT_EQ(score("gelu(score)"), "0.5 * score * (1.0 + erf(score * 0.7071067811865476))");
  EXPECT_EQ(score("softplus(score)"), "max(score, 0.0) + log(1.0 + exp(-abs(score)))");
  EXPECT_EQ(score("where(isnan(score), 0, score)"), "where(score != score, 0.0, score)");
  EXPECT_EQ(mask("isnan(kv_idx)"), "kv_idx * 1.0 != kv_idx * 1.0");
}

TEST(Where, PicksOfOneType) {
  EXPECT_EQ(score("where(q_idx > 1, score, 0)"), "where(q_idx > 1, score, 0.0)");
  EXPECT_EQ(mask("where(q_idx > 1, kv_idx > 2, true)"), "where(q_idx > 1, kv_idx > 2, true)");
  EXPECT_EQ(mask("where(flag[0], q_idx, flag[1]) == 1"),
            "where(flag[0], q_idx, where(flag[1], 1, 0)) == 1");
  EXPECT_EQ(score("where(q_idx, score, 0)"), "E0301");
}

TEST(Functions, AreAllCallable) {
  for (const std::string_view name : function_names()) {
    int served = 0;
    for (const char* arguments : {"(q_idx)", "(q_idx, 1)", "(q_idx > 0, 1, 2)", "(q_idx, 1, 2)"}) {
      const std::string call = "float(" + std::string(name) + arguments + ")";
      served += score(call)[0] == 'E' ? 0 : 1;
    }
    EXPECT_GT(served, 0) << name;
  }
}

}  // namespace
}  // namespace attn::sema
