#include "tests/host/kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/base/check.h"
#include "tests/support/host_kernels.h"

namespace attn::host {
namespace {

using Launcher = void (*)(void* const* arguments, std::size_t threads);
using Kernel = void (*)(void* const* arguments);
using GpuLauncher = void (*)(Kernel kernel, void* const* arguments, const gpu::Launch& launch,
                             gpu::Order order, std::string& error);

// Kernels whose rows have several lanes run in warps; the others run in a loop, which is faster.
std::string text_of(const plan::DeriveStep& step, std::size_t number) {
  const std::string& source = step.source;
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

std::set<std::string> names_of(const plan::KernelStep& step) {
  std::set<std::string> names;
  for (const plan::Launch& launch : step.launches) names.insert(launch.kernel);
  return names;
}

std::string name_of(const std::string& kernel, std::size_t number) {
  return fmt::format("run_{}_{}", number, kernel);
}

std::string text_of(const plan::KernelStep& step, std::size_t number) {
  std::string before, functions, after;
  for (const std::string& kernel : names_of(step)) {
    before += fmt::format("#define {0} {0}_{1}\n", kernel, number);
    functions += fmt::format("extern \"C\" void {}(void* const* a) {{ call_with({}, a); }}\n",
                             name_of(kernel, number), kernel);
    after += fmt::format("#undef {}\n", kernel);
  }
  return fmt::format("{}namespace kernel_{} {{\n{}\n{}}}\n{}", before, number, step.source,
                     functions, after);
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
  Numbers numbers;
  std::string texts;
  bool gpu = false;
  const auto add = [&](const auto& step) {
    const auto [kernel, is_new] = numbers.emplace(step.source, numbers.size());
    if (is_new) texts += text_of(step, kernel->second);
  };
  for (const plan::Program* program : programs) {
    for (const auto* step : plan::steps_of<plan::DeriveStep>(*program)) add(*step);
    for (const auto* step : plan::steps_of<plan::KernelStep>(*program)) add(*step), gpu = true;
  }
  if (numbers.empty()) return Kernels({}, nullptr);
  const Folder folder;
  // Precompiled: tests/host/CMakeLists.txt.
  std::ofstream(folder.file("kernels.cpp"))
      << fmt::format("#include \"{}{}.h\"\n", ATTN_KERNEL_HEADERS, gpu ? "gpu" : "host") << texts;
  const std::string command =
      fmt::format("{} {} -shared -Wl,-Bsymbolic -o {} {} {} 2> {}", ATTN_CXX, ATTN_KERNEL_OPTIONS,
                  folder.file("kernels.so"), folder.file("kernels.cpp"), ATTN_KERNEL_LIBRARIES,
                  folder.file("errors"));
  if (std::system(command.c_str()) != 0) {
    return {ErrorCode::internal, "kernels do not compile: " + text_of_file(folder.file("errors"))};
  }
  void* library = dlopen(folder.file("kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {ErrorCode::internal, dlerror()};
  return Kernels(std::move(numbers), std::shared_ptr<void>(library, dlclose));
}

void* Kernels::find(const std::string& name) const {
  void* found = dlsym(library_.get(), name.c_str());
  ATTN_CHECK(found != nullptr, name);
  return found;
}

void Kernels::launch(const plan::DeriveStep& step, std::int64_t threads,
                     void* const* arguments) const {
  const std::string name = fmt::format("launch_{}", numbers_.find(step.source)->second);
  reinterpret_cast<Launcher>(find(name))(arguments, static_cast<std::size_t>(threads));
}

Status Kernels::launch(const plan::KernelStep& step, const plan::Launch& launch,
                       void* const* arguments, gpu::Order order, unsigned at_once) const {
  const std::string name = name_of(launch.kernel, numbers_.find(step.source)->second);
  const gpu::Launch shape{static_cast<unsigned>(launch.grid[0]),
                          static_cast<unsigned>(launch.block[0]),
                          static_cast<std::size_t>(launch.shared_bytes), at_once};
  std::string error;
  reinterpret_cast<GpuLauncher>(find("attn_run_on_gpu"))(reinterpret_cast<Kernel>(find(name)),
                                                         arguments, shape, order, error);
  if (!error.empty()) return {ErrorCode::internal, fmt::format("{}: {}", launch.kernel, error)};
  return {};
}

}  // namespace attn::host
