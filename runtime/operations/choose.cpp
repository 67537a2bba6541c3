#include <fmt/format.h>

#include <algorithm>

#include "runtime/operations/images.h"

namespace attn::operations {

Result<Image> choose(std::span<const Image> all, std::int64_t sm) {
  constexpr std::int64_t kMinors = 10;
  const Image* best = nullptr;
  for (const Image& image : all) {
    const bool runs = image.is_ptx || image.sm / kMinors == sm / kMinors;
    if (!runs || image.sm > sm) continue;
    const auto rank = [](const Image& each) { return std::pair(!each.is_ptx, each.sm); };
    if (best == nullptr || rank(*best) < rank(image)) best = &image;
  }
  if (best != nullptr) return *best;
  const std::int64_t oldest = std::ranges::min_element(all, {}, &Image::sm)->sm;
  return {ErrorCode::unsupported,
          fmt::format("this GPU has compute capability {}.{}, but libattn's own kernels need {}.{} "
                      "or newer",
                      sm / kMinors, sm % kMinors, oldest / kMinors, oldest % kMinors)};
}

}  // namespace attn::operations
