#include "tests/host/kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/check.h"
#include "tests/support/host_kernels.h"

namespace attn::host {
namespace {

using Launcher = void (*)(void* const* arguments, std::size_t threads);

// Kernels whose rows have several lanes run in warps; the others run in a loop, which is faster.
std::string text_of(const std::string& source, std::size_t number) {
  const bool in_warps = source.find(".lanes = ") != std::string::npos;
  return testing::host_kernel(number, source) +
         fmt::format(
             "extern \"C\" void launch_{0}(void* const* arguments, std::size_t threads) {{\n"
             "  {1};\n}}\n",
             number,
             fmt::format(
                 fmt::runtime(in_warps ? "launch_on_host(kernel_{}::run, threads, arguments, false)"
                                       : "for_each_thread(kernel_{}::run, threads, arguments)"),
                 number));
}

// A temporary folder, removed by the destructor.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("attn_host_{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string text_of_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

Result<Kernels> Kernels::compile(const std::vector<const plan::Program*>& programs) {
  const Folder folder;
  std::ofstream file(folder.file("kernels.cpp"));
  file << testing::host_includes();
  Numbers numbers;
  for (const plan::Program* program : programs) {
    for (const plan::DeriveStep* step : plan::steps_of<plan::DeriveStep>(*program)) {
      const auto [kernel, is_new] = numbers.emplace(step->source, numbers.size());
      if (is_new) file << text_of(step->source, kernel->second);
    }
  }
  file.close();
  if (numbers.empty()) return Kernels({}, nullptr);
  const std::string command = fmt::format(
      "{0} -std=c++20 -O0 -w -fPIC -fno-gnu-unique -shared -Wl,-Bsymbolic -I{1} "
      "-I{1}/compiler/kernels -o {2} {3} {4} 2> {5}",
      ATTN_CXX, ATTN_SOURCE_DIR, folder.file("kernels.so"), folder.file("kernels.cpp"),
      ATTN_KERNEL_LIBRARIES, folder.file("errors"));
  if (std::system(command.c_str()) != 0) {
    return {ErrorCode::internal, "kernels do not compile: " + text_of_file(folder.file("errors"))};
  }
  void* library = dlopen(folder.file("kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {ErrorCode::internal, dlerror()};
  return Kernels(std::move(numbers), std::shared_ptr<void>(library, dlclose));
}

void Kernels::launch(const plan::DeriveStep& step, std::int64_t threads,
                     void* const* arguments) const {
  const std::string name = fmt::format("launch_{}", numbers_.find(step.source)->second);
  void* found = dlsym(library_.get(), name.c_str());
  ATTN_CHECK(found != nullptr, name);
  reinterpret_cast<Launcher>(found)(arguments, static_cast<std::size_t>(threads));
}

}  // namespace attn::host
