#include "runtime/nvrtc/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/base/answers.h"
#include "runtime/base/hash.h"
#include "runtime/base/libraries.h"
#include "runtime/base/python_sites.h"
#include "runtime/base/wheels.h"

namespace attn::nvrtc {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// The part of nvrtc.h that is used; its ABI is unchanged since CUDA 11.
using Program = struct NvrtcProgram*;
constexpr int kSuccess = 0;
constexpr int kInvalidOption = 5;

struct Nvrtc {
  std::string path;
  const char* (*error_string)(int) = nullptr;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*ptx_size)(Program, std::size_t*) = nullptr;
  int (*ptx)(Program, char*) = nullptr;
};

template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<Nvrtc> entry_points(void* library) {
  Nvrtc nvrtc;
  const bool found = look_up(library, "nvrtcGetErrorString", nvrtc.error_string) &&
                     look_up(library, "nvrtcVersion", nvrtc.version) &&
                     look_up(library, "nvrtcCreateProgram", nvrtc.create) &&
                     look_up(library, "nvrtcDestroyProgram", nvrtc.destroy) &&
                     look_up(library, "nvrtcCompileProgram", nvrtc.compile) &&
                     look_up(library, "nvrtcGetProgramLogSize", nvrtc.log_size) &&
                     look_up(library, "nvrtcGetProgramLog", nvrtc.log) &&
                     look_up(library, "nvrtcGetCUBINSize", nvrtc.cubin_size) &&
                     look_up(library, "nvrtcGetCUBIN", nvrtc.cubin) &&
                     look_up(library, "nvrtcGetPTXSize", nvrtc.ptx_size) &&
                     look_up(library, "nvrtcGetPTX", nvrtc.ptx);
  return found ? std::optional(nvrtc) : std::nullopt;
}

// Folders that may hold the library, or prefixes of such folders.
std::vector<fs::path> folders(const std::string& cudnn_folder) {
  std::vector<fs::path> all;
  if (!cudnn_folder.empty()) {
    // The vendor's wheels have <site>/nvidia/cu13/lib beside <site>/nvidia/cudnn/lib.
    const fs::path cudnn(cudnn_folder);
    for (const fs::path& site : {cudnn.parent_path(), cudnn.parent_path().parent_path()}) {
      for (const char* name : {"cu13", "cuda_nvrtc"}) all.push_back(site / name);
    }
    all.push_back(cudnn);
  }
  if (const char* home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    all.emplace_back(home);
  }
  for (const char* prefix : {"/usr/local/cuda", "/usr/local/cuda-13", "/opt/cuda"}) {
    all.emplace_back(prefix);
  }
  for (const fs::path& site : python_sites()) all.push_back(site / "nvidia" / "cu13");
  if (!wheels_folder().empty()) all.push_back(fs::path(wheels_folder()) / "nvidia" / "cu13");
  return all;
}

// NVRTC opens its builtins by name and does not search its own folder; loading them first makes
// them available.
void load_builtins(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) continue;
    dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

void* open_in(const fs::path& folder, std::vector<std::string>& tried) {
  std::error_code ignored;
  for (const char* inside : {"", "lib", "lib64"}) {
    for (const char* name : kNames) {
      const fs::path file = folder / inside / name;
      if (!fs::exists(file, ignored)) continue;
      load_builtins(file.parent_path());
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
      tried.emplace_back(dlerror());
    }
  }
  tried.push_back(folder.string() + ": not found");
  return nullptr;
}

Result<Nvrtc> load(const std::string& cudnn_folder) {
  std::vector<std::string> tried;
  void* library = nullptr;
  for (const fs::path& folder : folders(cudnn_folder)) {
    if (library == nullptr) library = open_in(folder, tried);
  }
  for (const char* name : kNames) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return Error{ErrorCode::cuda, "NVRTC, which compiles kernels, was not found", std::move(tried)};
  }
  auto nvrtc = entry_points(library);
  if (!nvrtc) return {ErrorCode::cuda, "the NVRTC library lacks a required function"};
  nvrtc->path = path_of(library);
  return *nvrtc;
}

std::string architecture_option(const Source& source) {
  return fmt::format("--gpu-architecture={}_{}{}", source.is_ptx ? "compute" : "sm", source.sm,
                     source.is_specific ? "a" : "");
}

// What an image and its log depend on (base/answers.h).
std::string question_of(const Source& source, const Nvrtc& nvrtc) {
  std::string text = fmt::format("nvrtc {}\n{}\n{}\n", identity_of(nvrtc.path),
                                 architecture_option(source), source.is_ptx ? "ptx" : "cubin");
  for (const char* option : source.options) text += fmt::format("{}\n", option);
  for (const Header& header : source.headers)
    text += fmt::format("{} {}\n", header.name, hash128(header.text).to_hex());
  return text + source.text;
}

struct Compiled {
  std::string image;
  std::string log;
};

std::string answer_of(const Compiled& compiled) {
  return fmt::format("{}\n{}{}", compiled.log.size(), compiled.log, compiled.image);
}

Compiled compiled_in(const std::string& answer) {
  const std::size_t log = answer.find('\n') + 1, size = std::stoull(answer);
  return {answer.substr(log + size), answer.substr(log, size)};
}

// Owns one NVRTC program.
class Compilation {
 public:
  explicit Compilation(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~Compilation() {
    if (program_ != nullptr) nvrtc_.destroy(&program_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Result<std::string> run(const Source& source) {
    ATTN_RETURN_IF_ERROR(create(source));
    const std::string architecture = architecture_option(source);
    std::vector<const char*> options = {architecture.c_str()};
    std::ranges::copy(source.options, std::back_inserter(options));
    const int result = nvrtc_.compile(program_, static_cast<int>(options.size()), options.data());
    if (result == kInvalidOption) {
      return {ErrorCode::cuda, fmt::format("NVRTC cannot compile for sm_{}: it is too old or too "
                                           "new for this GPU",
                                           source.sm)};
    }
    ATTN_RETURN_IF_ERROR(check(result, "compile"));
    if (source.is_ptx) return image(nvrtc_.ptx_size, nvrtc_.ptx);
    return image(nvrtc_.cubin_size, nvrtc_.cubin);
  }

  std::string log() const {
    std::size_t size = 0;
    if (program_ == nullptr || nvrtc_.log_size(program_, &size) != kSuccess || size < 2) return "";
    std::string text(size, '\0');
    nvrtc_.log(program_, text.data());
    return text.c_str();  // up to the 0
  }

 private:
  // Creates the program, with the files that it may include.
  Status create(const Source& source) {
    std::vector<const char*> headers, includes;
    for (const Header& header : source.headers) {
      headers.push_back(header.text.c_str());
      includes.push_back(header.name.c_str());
    }
    return check(nvrtc_.create(&program_, source.text.c_str(), "kernel.cu",
                               static_cast<int>(headers.size()), headers.data(), includes.data()),
                 "create");
  }

  Result<std::string> image(int (*size_of)(Program, std::size_t*), int (*read)(Program, char*)) {
    std::size_t size = 0;
    ATTN_RETURN_IF_ERROR(check(size_of(program_, &size), "return"));
    std::string image(size, '\0');
    ATTN_RETURN_IF_ERROR(check(read(program_, image.data()), "return"));
    return image;
  }

  Status check(int result, const char* action) const {
    if (result == kSuccess) return {};
    Error error{ErrorCode::internal, fmt::format("NVRTC failed to {} a kernel: {}", action,
                                                 nvrtc_.error_string(result))};
    if (std::string text = log(); !text.empty()) error.notes.push_back(std::move(text));
    return error;
  }

  const Nvrtc& nvrtc_;
  Program program_ = nullptr;
};

Result<Compiled> compile_or_find(const Source& source, const Nvrtc& nvrtc) {
  // A library without a path is not told from others.
  const Answers answers = nvrtc.path.empty() ? Answers("") : Answers();
  const std::string question = answers.is_kept() ? question_of(source, nvrtc) : "";
  ATTN_ASSIGN(const std::optional<std::string> answer, answers.find(question));
  if (answer) return compiled_in(*answer);
  Compilation compilation(nvrtc);
  ATTN_ASSIGN(std::string image, compilation.run(source));
  Compiled compiled{std::move(image), compilation.log()};
  // What cannot be kept, as where a disk is full, is compiled again.
  std::ignore = answers.keep(question, answer_of(compiled));
  return compiled;
}

}  // namespace

Result<std::string> compile(const Source& source, const std::string& cudnn_folder,
                            std::string* log) {
  ATTN_ASSIGN(const Nvrtc nvrtc, load(cudnn_folder));
  ATTN_ASSIGN(Compiled compiled, compile_or_find(source, nvrtc));
  if (log != nullptr) *log = std::move(compiled.log);
  return std::move(compiled.image);
}

Result<std::string> nvrtc_version(const std::string& cudnn_folder) {
  ATTN_ASSIGN(const Nvrtc nvrtc, load(cudnn_folder));
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor) != kSuccess) {
    return {ErrorCode::cuda, "NVRTC does not say its version"};
  }
  return fmt::format("{}.{}", major, minor);
}

}  // namespace attn::nvrtc
