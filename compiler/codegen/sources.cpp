#include "compiler/codegen/sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace attn::codegen {
namespace {

constexpr const char* kElementWise[] = {"--std=c++17", "--fmad=false"};
// The assembler reports registers and spills (nvrtc/assembly.h).
constexpr const char* kGeneral[] = {"--std=c++17", "--fmad=true", "--ftz=true", "--prec-div=false",
                                    "--ptxas-options=-v"};

// The text of a file after those of the files that it includes.
std::string whole_text(std::string_view name) {
  const std::string_view own = support::text_of(sources(), name);
  ATTN_CHECK(!own.empty(), name);
  constexpr std::string_view kInclude = "#include \"attn/";
  std::string text;
  for (std::size_t at = own.find(kInclude); at != own.npos; at = own.find(kInclude, at)) {
    at += kInclude.size();
    text += whole_text(own.substr(at, own.find('"', at) - at));
  }
  return text.append(own);
}

}  // namespace

std::span<const char* const> options_of(KernelKind kind) {
  if (kind == KernelKind::general) return kGeneral;
  return kElementWise;
}

std::string options_text() {
  return fmt::format("{}; {}\n", fmt::join(kElementWise, " "), fmt::join(kGeneral, " "));
}

std::string include_text(std::string_view name) {
  const std::string hash = hash128(options_text() + whole_text(name)).to_hex();
  return fmt::format("#include \"attn/{}\"  // {}\n", name, hash.substr(0, 16));
}

}  // namespace attn::codegen
