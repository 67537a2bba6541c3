#include "tests/standin/standins.h"

#include <dlfcn.h>

#include <ostream>

#include "runtime/base/check.h"

namespace attn::standin {
namespace {

// Loads a library of the folder, and returns its function.
template <typename Function>
Function load(const char* file, const char* function) {
  void* library = dlopen((folder() + '/' + file).c_str(), RTLD_NOW);
  ATTN_CHECK(library != nullptr, "the stand-ins are built beside the tests");
  return reinterpret_cast<Function>(dlsym(library, function));
}

std::string text_of(std::size_t (*write)(char*, std::size_t)) {
  std::string text(write(nullptr, 0) + 1, '\0');
  text.resize(std::min(write(text.data(), text.size()), text.size() - 1));
  return text;
}

}  // namespace

std::string folder() { return ATTN_STANDIN_FOLDER; }

const StandinCudnn& cudnn() {
  static const StandinCudnn& table =
      *load<StandinCudnnFunction>("libcudnn.so.9", "standin_cudnn")();
  return table;
}

const StandinCuda& cuda() {
  static const StandinCuda& table = *load<StandinCudaFunction>("libcuda.so.1", "standin_cuda")();
  return table;
}

const StandinNccl& nccl() {
  static const StandinNccl& table = *load<StandinNcclFunction>("libnccl.so.2", "standin_nccl")();
  return table;
}

StandinRule fail_nth(const char* function, long nth, int status, const char* words) {
  return {function, STANDIN_ANY, nth, status, words, 0, 0};
}

StandinRule block_nth(const char* function, long nth) {
  return {function, STANDIN_ANY, nth, 0, nullptr, 0, 1};
}

std::string violations() {
  return text_of(cudnn().control.violations) + text_of(cuda().control.violations);
}

std::string log_of(const StandinControl& control) { return text_of(control.log); }

Live live() {
  const auto of_cudnn = cudnn().control.live, of_cuda = cuda().control.live;
  return {of_cudnn("descriptor"), of_cudnn("handle"), of_cuda("context"),
          of_cuda("memory"),      of_cuda("bytes"),   of_cuda("stream"),
          of_cuda("event"),       of_cuda("module"),  of_cuda("graph") + of_cuda("graph exec")};
}

void PrintTo(const Live& live, std::ostream* out) {
  *out << "descriptors " << live.descriptors << ", handles " << live.handles << ", contexts "
       << live.contexts << ", memory " << live.memory << " (" << live.bytes << " bytes), streams "
       << live.streams << ", events " << live.events << ", modules " << live.modules << ", graphs "
       << live.graphs;
}

void StandinTest::SetUp() {
  cuda().control.reset();
  cudnn().control.reset();
  ASSERT_EQ(live(), Live()) << "left by an earlier test";
}

void StandinTest::TearDown() {
  cuda().control.release();
  cudnn().control.release();
  EXPECT_EQ(live(), Live());
  EXPECT_EQ(violations(), "");
}

}  // namespace attn::standin
