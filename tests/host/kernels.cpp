#include "tests/host/kernels.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/derive/prelude.h"
#include "runtime/base/check.h"
#include "tests/unit/compiler/programs/warps_on_host.h"

namespace attn::host {
namespace {

using Launcher = void (*)(void* const* arguments, std::size_t threads);

// Kernels with warp shuffles run in warps; the others run in a loop, which is faster.
std::string text_of(const std::string& source, std::size_t number) {
  const bool in_warps = source.find("__shfl") != std::string::npos;
  return fmt::format(
      "#define attn_derive attn_derive_{0}\nnamespace kernel_{0} {{\n{1}\n"
      "void run(void* const* a) {{ call_with(attn_derive, a); }}\n}}\n#undef attn_derive\n"
      "extern \"C\" void launch_{0}(void* const* arguments, std::size_t threads) {{\n  {2}\n}}\n",
      number, source,
      in_warps ? fmt::format("launch_on_host(kernel_{}::run, threads, arguments, false);", number)
               : fmt::format("for_each_thread(kernel_{}::run, threads, arguments);", number));
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
  static std::string name() {
    static int count = 0;
    return fmt::format("attn_host_{}_{}", getpid(), count++);
  }

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
  std::ofstream(folder.file(derive::kPreludeName)) << derive::kPrelude;
  std::ofstream file(folder.file("kernels.cpp"));
  file << "#include \"tests/unit/compiler/programs/warps_on_host.h\"\n"
          "#define asm ATTN_ASM_ON_HOST\n";
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
      "{} -std=c++20 -O0 -w -fPIC -fno-gnu-unique -shared -Wl,-Bsymbolic -I{} -I{} -o {} {} {} 2> "
      "{}",
      ATTN_CXX, ATTN_SOURCE_DIR, folder.file(""), folder.file("kernels.so"),
      folder.file("kernels.cpp"), ATTN_KERNEL_LIBRARIES, folder.file("errors"));
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
