// embed_kernels OUTPUT FOLDER FILE..: compiles kernels and writes OUTPUT, a source file that
// defines the function of operations/images.h. The kernels are those of all FILES whose names end
// in .cuh; each file is included as FOLDER/NAME. Part of the build: users of libattn need no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/nvrtc/library.h"

namespace attn::nvrtc {
namespace {

// Nothing is contracted to an FMA, so that results are those of the operations as written.
constexpr const char* kOptions[] = {"--std=c++17", "--fmad=false"};

struct Architecture {
  std::int64_t sm;
  bool is_ptx;
};
// A cubin runs on all GPUs of its major capability, PTX on all newer ones.
constexpr Architecture kArchitectures[] = {
    {80, false}, {90, false}, {100, false}, {120, false}, {80, true}};

Source source_of(const std::string& folder, const std::vector<std::filesystem::path>& files) {
  Source source;
  source.options = kOptions;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const std::string name = folder + "/" + file.filename().string();
    source.headers.push_back({name, std::string(std::istreambuf_iterator<char>(stream), {})});
    if (file.extension() == ".cuh") source.text += "#include \"" + name + "\"\n";
  }
  return source;
}

// The definition of an array that holds the bytes, in words, and a 0 after them.
std::string words_of(const std::string& image, std::size_t number) {
  constexpr std::size_t kBytes = sizeof(std::uint64_t), kWordsOfLine = 4;
  std::string text = fmt::format("alignas(16) constexpr std::uint64_t kImage{}[] = {{", number);
  for (std::size_t at = 0; at <= image.size(); at += kBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, image.data() + at, std::min(kBytes, image.size() - at));
    text += fmt::format("{}0x{:x},", at / kBytes % kWordsOfLine == 0 ? "\n    " : " ", word);
  }
  return text + "};\n";
}

Status write(const std::string& output, Source source) {
  std::string arrays, list;
  std::size_t number = 0;
  for (const Architecture& architecture : kArchitectures) {
    source.sm = architecture.sm;
    source.is_ptx = architecture.is_ptx;
    ATTN_ASSIGN(const std::string image, compile(source, ""));
    arrays += words_of(image, number);
    list += fmt::format("    {{{}, {}, {{reinterpret_cast<const char*>(kImage{}), {}}}}},\n",
                        architecture.sm, architecture.is_ptx, number++, image.size());
  }
  std::ofstream file(output);
  file << fmt::format(
      "#include <cstdint>\n\n"
      "#include \"runtime/operations/images.h\"\n\n"
      "namespace attn::operations {{\nnamespace {{\n\n{}\n}}  // namespace\n\n"
      "std::span<const Image> images() {{\n  static const Image kImages[] = {{\n{}  }};\n"
      "  return kImages;\n}}\n\n}}  // namespace attn::operations\n",
      arrays, list);
  file.close();
  if (!file) return Status(ErrorCode::io, output + " cannot be written");
  return {};
}

}  // namespace
}  // namespace attn::nvrtc

int main(int count, char** arguments) {
  const std::vector<std::filesystem::path> files(arguments + 3, arguments + count);
  const attn::Status status =
      attn::nvrtc::write(arguments[1], attn::nvrtc::source_of(arguments[2], files));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_text().c_str());
  return 1;
}
