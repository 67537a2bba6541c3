// What to write instead of a name that is no target.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "runtime/targets/targets.h"

namespace attn::targets {
namespace {

constexpr std::int64_t kLeast = 80;  // what attnc compiles for

struct Gpu {
  std::string_view name;
  std::int64_t sm;
};
constexpr Gpu kGpus[] = {
#define ATTN_GPU(name, sm) {#name, sm},
#include "runtime/targets/gpus.def"
#undef ATTN_GPU
};

// The name of a GPU in letters and digits, without its maker, family, form and memory:
// "NVIDIA H100-SXM5-80GB" is "h100".
std::string plain_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) name += static_cast<char>(std::tolower(letter));
  }
  for (const std::string_view before : {"nvidia", "geforce", "tesla", "quadro"}) {
    if (name.starts_with(before)) name.erase(0, before.size());
  }
  constexpr std::string_view kBehind[] = {
      "sxm",  "sxm2",  "sxm3", "sxm4",  "sxm5",   "sxm6",   "pcie",  "nvl",   "hbm2",  "hbm2e",
      "hbm3", "hbm3e", "ti",   "super", "laptop", "mobile", "maxq",  "d",     "16gb",  "24gb",
      "32gb", "40gb",  "48gb", "80gb",  "94gb",   "96gb",   "141gb", "144gb", "180gb", "192gb"};
  const auto is_known = [&] {
    return std::ranges::find(kGpus, name, &Gpu::name) != std::end(kGpus);
  };
  for (bool shorter = true; shorter && !is_known();) {
    shorter = false;
    for (const std::string_view behind : kBehind) {
      if (name.size() <= behind.size() || !name.ends_with(behind)) continue;
      name.resize(name.size() - behind.size());
      shorter = true;
      break;
    }
  }
  return name;
}

// The capability of "sm_86", "sm86", "sm_90a", "compute_86", "8.6" and "86", or of a GPU; nullopt
// for others.
std::optional<std::int64_t> capability_of(std::string_view text) {
  const std::string name = plain_name(text);
  const auto* gpu = std::ranges::find(kGpus, name, &Gpu::name);
  if (gpu != std::end(kGpus)) return gpu->sm;
  std::string_view digits = name;
  for (const std::string_view before : {"sm", "compute", "cc"}) {
    if (digits.starts_with(before)) digits.remove_prefix(before.size());
  }
  if (digits.ends_with('a') || digits.ends_with('f')) digits.remove_suffix(1);
  std::int64_t sm = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sm);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && sm >= 10 && sm < 200 ? std::optional(sm) : std::nullopt;
}

std::string capability_text(std::int64_t sm) { return fmt::format("{}.{}", sm / 10, sm % 10); }

bool is_target(std::string_view name) {
  const std::vector<std::string> names = target_names();
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::find(aliases(), name, &Alias::name) != aliases().end();
}

bool means_own_gpu(std::string_view text) {
  constexpr std::string_view kWords[] = {"cuda", "gpu",     "local",  "host", "auto",
                                         "this", "current", "device", "self", "cuda0"};
  return std::ranges::find(kWords, plain_name(text)) != std::end(kWords);
}

}  // namespace

std::string hint_for(std::string_view name) {
  if (means_own_gpu(name)) return "`native` is the GPU of this machine";
  const std::string plain = plain_name(name);
  if (is_target(plain)) return fmt::format("did you mean `{}`?", plain);
  const std::optional<std::int64_t> sm = capability_of(name);
  if (!sm) return "";
  const std::string capability = capability_text(*sm);
  if (*sm < kLeast) {
    return fmt::format("its compute capability is {}; attnc compiles for 8.0 and higher",
                       capability);
  }
  for (const std::string& target : target_names()) {
    const auto found = find_target(target);
    if (!found.ok() || found->sm != *sm) continue;
    return fmt::format("its compute capability is {}, like that of `{}`", capability, target);
  }
  return fmt::format(
      "its compute capability is {}, and no target has this one; on a machine with such a GPU "
      "`--target native` compiles for it, and `attnc target dump` writes a file for `--target`",
      capability);
}

}  // namespace attn::targets
