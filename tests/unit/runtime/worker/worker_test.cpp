// Tests the worker as a process, with the real cuDNN and no driver.
#include "runtime/worker/worker.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/targets/targets.h"
#include "tests/support/own_answers.h"
#include "tests/unit/runtime/worker/fixtures.h"
#include "tests/unit/runtime/worker/graphs.h"

namespace attn::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class Worker : public ::testing::Test {
 protected:
  Result<worker::Compiled> compile(const AttentionShape& shape, Mask mask,
                                   const std::string& target = "h200") {
    return worker::compile(attention_graph(shape, mask), device_json(target), options_);
  }

  std::size_t reports() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_.path()),
                      std::filesystem::directory_iterator()));
  }

  TemporaryFolder folder_;
  worker::Options options_ = worker_options(folder_);
};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class WorkerTargets : public Worker, public ::testing::WithParamInterface<std::string> {};

TEST_P(WorkerTargets, CompilesPlainAndCausalForward) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    const auto compiled = compile({}, mask, GetParam());
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
    EXPECT_EQ(compiled->step.heuristic, "A");
    EXPECT_GE(compiled->step.engine, 0);
    EXPECT_GE(compiled->step.workspace_bytes, 0);
    EXPECT_GT(compiled->step.cudnn_plan.size(), 20'000U) << "a plan holds its kernel";
    EXPECT_TRUE(Json::accept(compiled->step.cudnn_plan));
    EXPECT_GE(compiled->cudnn_version, 91900);
  }
  EXPECT_EQ(reports(), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, WorkerTargets, ::testing::ValuesIn(targets::target_names()));

TEST_F(Worker, TellsItsVersion) {
  const auto version = worker::cudnn_version(options_);
  ASSERT_TRUE(version.ok()) << version.error().to_text();
  EXPECT_GE(*version, 91900);
}

TEST_F(Worker, RefusedGraphHasConfigsAndReasons) {
  AttentionShape shape;
  shape.head_dim = 100;
  const auto compiled = compile(shape, Mask::none);
  ASSERT_FALSE(compiled.ok());
  const Error& error = compiled.error();
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message, "cuDNN offers no engine config for this graph");
  EXPECT_THAT(error.notes, Contains(HasSubstr("not a multiple of 8")));
  const Json payload = Json::parse(error.payload);
  EXPECT_EQ(payload.at("stage"), "heuristics");
  ASSERT_EQ(payload.at("modes").size(), 2U);
  EXPECT_EQ(payload.at("modes").at(0).at("mode"), "A");
  EXPECT_EQ(payload.at("modes").at(1).at("mode"), "FALLBACK");
  ASSERT_FALSE(payload.at("configs").empty());
  const Json& first = payload.at("configs").at(0);
  EXPECT_EQ(first.at("offered"), false);
  EXPECT_EQ(first.at("status"), "NOT_SUPPORTED_SHAPE");
  EXPECT_THAT(first.at("reason").get<std::string>(), HasSubstr("not a multiple of 8"));
  EXPECT_TRUE(first.at("knobs").contains("24"));  // CUDNN_KNOB_TYPE_KERNEL_CFG
  EXPECT_EQ(reports(), 0U);
}

TEST_F(Worker, RefusedOperationNamesItsNode) {
  graph::BackendGraph graph = attention_graph({}, Mask::none);
  std::get<graph::Matmul>(graph.nodes[0]).b = 1;  // q x q does not fit
  const auto compiled = worker::compile(graph, device_json("h200"), options_);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::cudnn);
  EXPECT_THAT(compiled.error().message, HasSubstr("node 0 (matmul)"));
  const Json payload = Json::parse(compiled.error().payload);
  EXPECT_EQ(payload.at("stage"), "operation");
  EXPECT_EQ(payload.at("node"), 0);
}

TEST_F(Worker, WrongDevicePropertiesAreTheCallersMistake) {
  Json device = Json::parse(device_json("h200"));
  device.erase("maxGridSize");
  const auto compiled = worker::compile(attention_graph({}, Mask::none), device.dump(), options_);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(compiled.error().notes, Contains(HasSubstr("maxGridSize")));
}

TEST_F(Worker, SeveralGraphsAreCompiledInOrder) {
  AttentionShape other;
  other.head_dim = 128;
  const std::vector<graph::BackendGraph> graphs = {attention_graph({}, Mask::causal),
                                                   attention_graph(other, Mask::none)};
  const auto all = worker::compile(graphs, device_json("h200"), options_);
  ASSERT_TRUE(all.ok()) << all.error().to_text();
  ASSERT_EQ(all->size(), 2U);
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const auto alone = worker::compile(graphs[i], device_json("h200"), options_);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ((*all)[i].step.engine, alone->step.engine);
    EXPECT_EQ((*all)[i].step.knobs, alone->step.knobs);
    EXPECT_EQ((*all)[i].cudnn_version, alone->cudnn_version);
  }
}

TEST_F(Worker, OfSeveralGraphsTheFirstRefusalIsTheError) {
  AttentionShape refused;
  refused.head_dim = 100;
  const std::vector<graph::BackendGraph> graphs = {attention_graph({}, Mask::causal),
                                                   attention_graph(refused, Mask::none),
                                                   attention_graph({}, Mask::none)};
  const auto all = worker::compile(graphs, device_json("h200"), options_);
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().code, ErrorCode::unsupported);
  EXPECT_THAT(all.error().notes, Contains(HasSubstr("not a multiple of 8")));
}

struct Killer {
  const char* name;
  Mask mask;
  int node;  // the select
  const char* signal;
};

class WorkerDeaths : public Worker, public ::testing::WithParamInterface<Killer> {};

TEST_P(WorkerDeaths, AreReportedWithSignalNodePositionAndRepro) {
  const Killer& killer = GetParam();
  const auto version = worker::cudnn_version(options_);
  ASSERT_TRUE(version.ok());
  if (*version != 91900) GTEST_SKIP() << "these graphs are known to kill cuDNN 9.19.0";
  const auto compiled = compile({}, killer.mask);
  ASSERT_FALSE(compiled.ok());
  const Error& error = compiled.error();
  EXPECT_EQ(error.code, ErrorCode::worker);
  const Json payload = Json::parse(error.payload);
  EXPECT_EQ(payload.at("signal"), killer.signal);
  EXPECT_EQ(payload.at("stage"), "heuristics A");
  EXPECT_EQ(payload.at("node"), killer.node);
  EXPECT_EQ(payload.at("line"), killer.node + 1);
  EXPECT_EQ(payload.at("column"), 3);
  EXPECT_THAT(error.message, HasSubstr(killer.signal));
  EXPECT_THAT(error.message, HasSubstr("(binary_select), line " + std::to_string(killer.node + 1)));
  EXPECT_EQ(reports(), 1U) << "looking for the node leaves no reports of its own";

  const auto repro = payload.at("repro").get<std::string>();
  EXPECT_THAT(std::filesystem::path(repro).filename().string(),
              StartsWith(std::string("attnc-worker-") + killer.signal + "-"));
  const std::string replay =
      std::string("exec ") + ATTN_WORKER_PROGRAM + " worker < " + repro + " > /dev/null 2>&1";
  const int status = std::system(("/bin/bash -c '" + replay + "'").c_str());
  ASSERT_TRUE(WIFEXITED(status) || WIFSIGNALED(status));
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  EXPECT_EQ("SIG" + std::string(sigabbrev_np(signal)), killer.signal);
}

INSTANTIATE_TEST_SUITE_P(Known, WorkerDeaths,
                         ::testing::Values(Killer{"ConstantFirst", Mask::constant_first, 5,
                                                  "SIGSEGV"},
                                           Killer{"U8Mask", Mask::u8_tensor, 2, "SIGABRT"}),
                         [](const auto& killer) { return killer.param.name; });

TEST_F(Worker, MissingCudnnFolder) {
  options_.cudnn_folder = "/no/such/folder";
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::cudnn);
  EXPECT_THAT(compiled.error().notes, Contains(HasSubstr("/no/such/folder")));
  const auto version = worker::cudnn_version(options_);
  ASSERT_FALSE(version.ok());
  EXPECT_EQ(version.error().code, ErrorCode::cudnn);
}

TEST_F(Worker, CommandThatDoesNotExist) {
  options_.command = {"/no/such/program", "worker"};
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::worker);
  EXPECT_THAT(compiled.error().message, HasSubstr("/no/such/program: No such file"));
}

TEST_F(Worker, CommandThatIsNoWorker) {
  options_.command = {"/bin/echo", "hello"};
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::worker);
  EXPECT_THAT(compiled.error().message, HasSubstr("\"hello\""));
}

TEST_F(Worker, CompilesAKernelWithinItsLimits) {
  const worker::KernelSource source{"extern \"C\" __global__ void nothing() {}\n", 90, true};
  const auto kernel = worker::compile_kernel(source, options_);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_text();
  EXPECT_THAT(kernel->image, HasSubstr("ELF"));
  options_.most_bytes = 1;
  const auto large = worker::compile_kernel(source, options_);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::worker);
  EXPECT_THAT(large.error().message, HasSubstr("of memory and was killed"));
  options_.most_bytes = 0;
  options_.timeout = std::chrono::seconds(0);
  const auto late = worker::compile_kernel(source, options_);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::worker);
  EXPECT_THAT(late.error().message, HasSubstr("took longer than 0 s"));
}

// Each worker that is started adds a line to a file.
TEST_F(Worker, SeveralKernelsAreCompiledInOneWorkerInOrder) {
  const std::filesystem::path started = folder_.path() / "started";
  options_.command = {
      "/bin/sh", "-c",
      "echo worker >> " + started.string() + "; exec " ATTN_WORKER_PROGRAM " worker"};
  std::vector<worker::KernelSource> sources;
  for (const char* name : {"first", "second"}) {
    sources.push_back({"extern \"C\" __global__ void " + std::string(name) + "() {}\n", 90, false});
  }
  const auto kernels = worker::compile_kernels(sources, options_);
  ASSERT_TRUE(kernels.ok()) << kernels.error().to_text();
  ASSERT_EQ(kernels->size(), 2U);
  EXPECT_THAT(kernels->front().image, HasSubstr("first"));
  EXPECT_THAT(kernels->back().image, HasSubstr("second"));
  EXPECT_EQ(text_of(started), "worker\n");
  sources.insert(sources.begin() + 1, {"int x = y;\n", 90, false});
  const auto rejected = worker::compile_kernels(sources, options_);
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.error().code, ErrorCode::internal);
}

// A worker that answers for the first kernel, and dies of the second.
TEST_F(Worker, TheReproHasOnlyTheKernelThatAWorkerDiedOf) {
  options_.command = {"/bin/sh", "-c",
                      R"(echo '{"kernel": {"image": "a", "log": ""}}'; kill -SEGV $$)"};
  const std::vector<worker::KernelSource> sources = {{"int first;", 90, false},
                                                     {"int second;", 90, false}};
  const auto kernels = worker::compile_kernels(sources, options_);
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.error().code, ErrorCode::worker);
  const Json request = Json::parse(text_of(Json::parse(kernels.error().payload)["repro"]));
  ASSERT_EQ(request["kernels"].size(), 1U);
  EXPECT_EQ(request["kernels"][0]["text"], "int second;");
}

TEST_F(Worker, KernelThatIsRejected) {
  const auto kernel = worker::compile_kernel({"int x = y;\n", 90, true}, options_);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::internal);
}

TEST_F(Worker, EndWithoutAnswer) {
  options_.command = {"/bin/sh", "-c", "echo out of luck >&2; exit 3"};
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::worker);
  EXPECT_THAT(compiled.error().message, HasSubstr("exit code 3"));
  EXPECT_THAT(compiled.error().notes, Contains(HasSubstr("out of luck")));
}

// Each file has the answer for one graph and target. One that others may write to is not read.
TEST_F(Worker, AnswersAreKeptAndLookedUp) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const fs::path answers = folder.path() / "answers";
  const OwnAnswers own(answers.string());
  const auto files = [&answers] {
    return std::distance(fs::directory_iterator(answers), fs::directory_iterator());
  };
  const auto first = compile({}, Mask::causal), again = compile({}, Mask::causal);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->step, again->step);
  EXPECT_EQ(first->cudnn_version, again->cudnn_version);
  EXPECT_EQ(files(), 1);
  for (const auto& file : fs::directory_iterator(answers))
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(compile({}, Mask::causal).error().code, ErrorCode::io);
  EXPECT_TRUE(compile({}, Mask::none).ok());
  EXPECT_TRUE(compile({}, Mask::none, "a100").ok());
  EXPECT_TRUE(worker::offer(attention_graph({}, Mask::none), device_json("h200"), options_).ok());
  EXPECT_EQ(files(), 4);
}

// Ten graphs have no more time than one.
TEST_F(Worker, TheTimeoutIsThatOfAllGraphs) {
  options_.command = {"/bin/sh", "-c", "sleep 5; exit 3"};
  options_.timeout = std::chrono::seconds(1);
  const std::vector<graph::BackendGraph> graphs(10, attention_graph({}, Mask::none));
  const auto compiled = worker::compile(graphs, "", options_);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("longer than 1 s"));
}

TEST_F(Worker, TimeoutIsReported) {
  options_.command = {
      "/bin/sh", "-c",
      R"(echo '{"progress":{"stage":"operation","node":3}}'; sleep 100 & sleep 100)"};
  options_.timeout = std::chrono::seconds(1);
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::worker);
  EXPECT_THAT(compiled.error().message, HasSubstr("longer than 1 s"));
  const Json payload = Json::parse(compiled.error().payload);
  EXPECT_EQ(payload.at("signal"), "");
  EXPECT_EQ(payload.at("cause"), "timeout");
  EXPECT_EQ(payload.at("node"), 3);
  EXPECT_EQ(payload.at("line"), 4);
  EXPECT_EQ(reports(), 1U);
}

// Like a crash of cuDNN, whatever its version.
TEST_F(Worker, DeathAtANodeThatTheWorkerNamed) {
  options_.command = {"/bin/sh", "-c",
                      R"(echo '{"progress":{"stage":"operation","node":5}}'; kill -FPE $$)"};
  const graph::BackendGraph graph = attention_graph({}, Mask::causal);
  const auto compiled = worker::compile(graph, device_json("h200"), options_);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().message,
            "the compile worker was killed by SIGFPE, in stage \"operation\", at node 5 "
            "(binary_select), line 6, column 3");
  const Json payload = Json::parse(compiled.error().payload);
  EXPECT_EQ(payload.at("node"), 5);
  std::ifstream repro(payload.at("repro").get<std::string>());
  const Json request = Json::parse(repro);
  EXPECT_EQ(request.at("request"), "compile");
  EXPECT_EQ(graph::from_json(request.at("graphs").at(0).dump()).value(), graph);
}

// The first request crashes at once, and the search for its node never ends.
TEST_F(Worker, TimeoutCoversTheSearchForTheNode) {
  const std::string seen = (folder_.path() / "seen").string();
  options_.command = {"/bin/sh", "-c",
                      "echo >> " + seen + "; if [ $(wc -l < " + seen +
                          ") -gt 1 ]; then sleep 100; fi; kill -FPE $$"};
  options_.timeout = std::chrono::seconds(2);
  const auto compiled = compile({}, Mask::causal);
  EXPECT_EQ(std::filesystem::file_size(seen), 2U) << "there is no time left for a third request";
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().message, "the compile worker was killed by SIGFPE");
  const Json payload = Json::parse(compiled.error().payload);
  EXPECT_EQ(payload.at("signal"), "SIGFPE");
  EXPECT_EQ(payload.at("node"), -1);
}

TEST_F(Worker, ProgramThatIsNoWorkerDoesNotStartItselfWithoutEnd) {
  const std::string folder = folder_.path().string();
  const int status = std::system(("cd " + folder + " && " + ATTN_EMBEDDER_PROGRAM).c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(text_of(folder_.path() / "starts"), "one\none\n");
  EXPECT_THAT(text_of(folder_.path() / "words"),
              HasSubstr("exited without an answer (exit code 3)"));
  EXPECT_THAT(text_of(folder_.path() / "words"),
              HasSubstr("set Options::command to a program that calls worker::serve"));
}

class WorkerMark : public Worker {
 protected:
  void SetUp() override { ASSERT_EQ(setenv("ATTN_WORKER", "1", 1), 0); }
  void TearDown() override { unsetenv("ATTN_WORKER"); }
};

TEST_F(WorkerMark, RefusesToStartAWorker) {
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, ErrorCode::worker);
  EXPECT_THAT(compiled.error().message,
              HasSubstr("set Options::command to a program that calls worker::serve"));
  const auto version = worker::cudnn_version(options_);
  ASSERT_FALSE(version.ok());
  EXPECT_EQ(version.error().code, ErrorCode::worker);
  EXPECT_EQ(reports(), 0U);
}

TEST_F(Worker, ReportFolderThatCannotBeWritten) {
  options_.command = {"/bin/sh", "-c", "kill -FPE $$"};
  options_.report_folder = "/proc/no/reports";
  const auto compiled = compile({}, Mask::none);
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("SIGFPE"));
  EXPECT_THAT(compiled.error().notes, Contains(HasSubstr("could not be written")));
  EXPECT_EQ(Json::parse(compiled.error().payload).at("repro"), "");
}

TEST_F(Worker, LoggingOfCudnnDoesNotDisturbTheAnswer) {
  options_.command = {"/usr/bin/env", "CUDNN_LOGLEVEL_DBG=3", "CUDNN_LOGDEST_DBG=stdout",
                      ATTN_WORKER_PROGRAM, "worker"};
  const auto compiled = compile({}, Mask::none);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
}

TEST_F(Worker, LeavesNoDescriptorsAndNoChildren) {
  const std::size_t before = open_descriptors();
  AttentionShape refused;
  refused.head_dim = 100;
  EXPECT_TRUE(compile({}, Mask::none).ok());
  EXPECT_FALSE(compile(refused, Mask::none).ok());
  EXPECT_FALSE(compile({}, Mask::u8_tensor).ok());
  options_.command = {"/no/such/program"};
  EXPECT_FALSE(compile({}, Mask::none).ok());
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace attn::testing
