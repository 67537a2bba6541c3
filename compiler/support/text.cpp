#include "compiler/support/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace attn::support {
namespace {

constexpr std::size_t kShownBytes = 48;

std::size_t expected_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// The second byte reveals overlong forms, surrogates and values above U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second <= 0x9F;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second <= 0x8F;
    default: return true;
  }
}

bool well_formed(std::string_view text, std::size_t bytes) {
  if (bytes == 0 || text.size() < bytes) return false;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return false;
  }
  return bytes == 1 || second_byte_fits(at(0), at(1));
}

// The edit distance (insert, delete, replace, swap of neighbours) of two words, or any value above
// `most` if it is larger than that.
std::size_t edits(std::string_view a, std::string_view b, std::size_t most) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most) return most + 1;
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    if (*std::ranges::min_element(row) > most && *std::ranges::min_element(last) > most) {
      return most + 1;
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::size_t code_point_bytes(std::string_view text) {
  const std::size_t bytes = expected_bytes(static_cast<unsigned char>(text[0]));
  return well_formed(text, bytes) ? bytes : 1;
}

bool is_printable(std::string_view code_point) {
  const auto lead = static_cast<unsigned char>(code_point[0]);
  if (code_point.size() == 1) return lead >= 0x20 && lead < 0x7F;
  const bool c1_control = lead == 0xC2 && static_cast<unsigned char>(code_point[1]) < 0xA0;
  return !c1_control && well_formed(code_point, code_point.size());
}

bool has_utf16_mark(std::string_view text) {
  return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
}

bool is_text(std::string_view text) {
  return !has_utf16_mark(text) && text.find('\0') == text.npos;
}

std::string printable(std::string_view text) {
  std::string out;
  std::size_t i = 0;
  while (i < text.size() && i < kShownBytes) {
    const std::string_view point = text.substr(i, code_point_bytes(text.substr(i)));
    if (is_printable(point)) {
      out += point;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(point[0]));
      for (const char c : point.substr(1)) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    i += point.size();
  }
  return i < text.size() ? out + "..." : out;
}

std::string quoted(std::string_view text) { return fmt::format("`{}`", printable(text)); }

std::string count_of(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string one_of(std::span<const std::string_view> words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += quoted(words[i]);
  }
  return out;
}

std::string dims_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongestWord = 64;  // a longer word is not a misspelling
  if (word.size() > kLongestWord) return {};
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const auto same_letters = [&](std::string_view candidate) {
    return std::ranges::equal(word, candidate, {}, lower, lower);
  };
  const auto same = std::ranges::find_if(candidates, same_letters);
  if (same != candidates.end()) return *same;
  std::string_view best;
  std::size_t best_edits = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t count = edits(word, candidate, best_edits);
    const bool all_replaced = count >= std::max(word.size(), candidate.size());
    if (count < best_edits && !all_replaced) {
      best = candidate;
      best_edits = count;
    }
  }
  return best;
}

Excess excess(double bytes, double most) {
  constexpr int kBytes = 9;  // decimal places: one byte
  Excess words;
  for (int digits = 0; digits <= kBytes; ++digits) {
    words = {fmt::format("{:.{}f} GB", bytes / 1e9, digits),
             fmt::format("{:.{}f} GB", most / 1e9, digits)};
    if (words.amount != words.most) break;
  }
  return words;
}

}  // namespace attn::support
