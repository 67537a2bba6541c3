#include "tests/fuzz/trial.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "compiler/driver/driver.h"
#include "compiler/driver/support.h"
#include "compiler/nvrtc/nvrtc.h"
#include "compiler/target/context.h"
#include "runtime/base/descriptors.h"
#include "runtime/cudnn/compile.h"
#include "runtime/worker/driver_image.h"
#include "runtime/worker/report.h"
#include "tests/support/combinations.h"

namespace attn::fuzz {
namespace {

constexpr auto kEndings =
    std::to_array<std::string_view>({"served", "refused by a rule", "refused by cuDNN", "invalid",
                                     "failed", "died", "timed out", "crashed"});

constexpr const char* kSmallest = "attention smallest { dims B = 1, Hq = 1, Sq = 64, D = 64; }";

// Protocol of a child: first this byte when it calls cuDNN, at the end its outcome.
constexpr char kAsksCudnn = '!';

// Removes names and numbers, which differ between specs.
std::string common_words(std::string_view text) {
  std::string words;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (c == '`') {
      quoted = !quoted;
      if (!quoted) words += "..";
    }
    if (c == '\n' || c == '\t' || (quoted && c != '`')) continue;
    if (!digit) words += c;
    if (digit && (words.empty() || words.back() != 'N')) words += 'N';
  }
  return words;
}

Outcome outcome_of(const Error& error, Ending refused) {
  switch (error.code) {
    case ErrorCode::unsupported: return {refused, common_words(driver::reason_of(error))};
    case ErrorCode::invalid_spec: return {Ending::invalid, common_words(error.message)};
    default: return {Ending::failed, common_words(error.to_text())};
  }
}

// As in the worker: crashes are expected, and leave no core file.
void set_child_rules() {
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) std::signal(fatal, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// Reads until the other end is closed. Returns nothing on timeout.
std::optional<std::string> read_until(int fd, std::chrono::steady_clock::time_point deadline) {
  std::string text;
  char buffer[4096];
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd event{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&event, 1, static_cast<int>(left.count())) <= 0) {
      return std::nullopt;
    }
    const std::ptrdiff_t size = read_some(fd, buffer, sizeof buffer);
    if (size <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

// A graph that attnc knows cuDNN to compute wrongly (known_bad.def) is not given to cuDNN.
Ending refuser_of(const Error& error) {
  const auto payload = nlohmann::json::parse(error.payload, nullptr, false);
  const bool known = payload.is_object() && payload.value("stage", "") == "known bad";
  return known ? Ending::refused_by_rule : Ending::refused_by_cudnn;
}

Outcome outcome_of(std::string_view said, int status) {
  const bool asked = said.starts_with(kAsksCudnn);
  if (WIFSIGNALED(status)) {
    return {asked ? Ending::died : Ending::crashed, worker::signal_name(WTERMSIG(status))};
  }
  if (asked) said.remove_prefix(1);
  if (said.empty()) return {Ending::crashed, fmt::format("exit code {}", WEXITSTATUS(status))};
  return {static_cast<Ending>(said[0] - '0'), std::string(said.substr(1))};
}

}  // namespace

std::set<std::string> combinations_of(const std::string& spec, const std::string& lowering) {
  std::set<std::string> all;
  const support::Source source("random.attn", spec);
  diag::Sink sink(source);
  const Result<plan::Program> program =
      driver::lower(*driver::front_end(source, {}, sink), lowering);
  if (!program.ok()) return all;  // served for another direction, or by another skeleton
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(*program)) {
    all.merge(testing::combinations(step->graph));
  }
  return all;
}

std::string_view to_string(Ending ending) { return kEndings[static_cast<std::size_t>(ending)]; }

Result<Compiler> Compiler::load(TrialOptions options) {
  ATTN_RETURN_IF_ERROR(worker::load_nodriver());
  ATTN_ASSIGN(auto library, cudnn::Library::load(options.cudnn_folder));
  Compiler compiler(std::move(library), std::move(options));
  const support::Source source("smallest.attn", kSmallest);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  if (!attention) return {ErrorCode::internal, diag::to_text(sink)};
  ATTN_ASSIGN(const plan::Program program, driver::lower(*attention, "cudnn"));
  ATTN_RETURN_IF_ERROR(compiler.compile_steps(program));
  return compiler;
}

Status Compiler::compile_steps(const plan::Program& program) const {
  const auto ask = options_.only_offer ? cudnn::offer : cudnn::compile;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    ATTN_RETURN_IF_ERROR(
        ask(*library_, step->graph, options_.target.device_json, [](const auto&) {}).status());
  }
  if (options_.only_offer || options_.only_cudnn) return {};
  for (const auto& [source, general] : plan::sources_of(program)) {
    const auto kind = general ? codegen::KernelKind::general : codegen::KernelKind::element_wise;
    ATTN_RETURN_IF_ERROR(
        nvrtc::compile_kernel(*source, options_.target.sm, options_.cudnn_folder, kind).status());
  }
  return {};
}

Outcome Compiler::in_this_process(const std::string& spec, int report) const {
  const support::Source source("random.attn", spec);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, {}, sink);
  if (!attention) return {Ending::invalid, common_words(sink.sorted().at(0).message)};
  target::Context context;
  context.gpu = target::gpu_of(options_.target);
  context.rewrites = options_.rewrites;
  if (options_.backward) context.direction = plan::Direction::backward;
  const Result<plan::Program> program =
      driver::lower(options_.backward ? driver::training_forward(*attention) : *attention,
                    options_.lowering, context);
  if (!program.ok()) return outcome_of(program.error(), Ending::refused_by_rule);
  (void)write_all(report, std::string_view(&kAsksCudnn, 1));
  const Status compiled = compile_steps(*program);
  if (!compiled.ok()) return outcome_of(compiled.error(), refuser_of(compiled.error()));
  return {};
}

Outcome Compiler::compile(const std::string& spec) const {
  int ends[2];
  if (pipe(ends) != 0) return {Ending::failed, errno_text("pipe")};
  const FileDescriptor answers(ends[0]);
  FileDescriptor report(ends[1]);
  const pid_t child = fork();
  if (child < 0) return {Ending::failed, errno_text("fork")};
  if (child == 0) {
    set_child_rules();
    const Outcome outcome = in_this_process(spec, report.get());
    const char digit = static_cast<char>('0' + static_cast<int>(outcome.ending));
    (void)write_all(report.get(), digit + outcome.reason);
    _exit(0);
  }
  report.close();
  const auto said = read_until(answers.get(), std::chrono::steady_clock::now() + options_.timeout);
  if (!said) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return said ? outcome_of(*said, status) : Outcome{Ending::timed_out, "no answer"};
}

}  // namespace attn::fuzz
