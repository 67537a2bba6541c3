#include "runtime/ranks/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace attn::ranks {
namespace {

// What a rank says: three texts, each filled up with zeros.
constexpr std::size_t kHash = 64, kCode = 32, kMessage = 224;
constexpr std::size_t kMostNamed = 8;  // ranks in a message

struct Word {
  std::string hash, code, message;  // code: empty if all went well
};

// Cut to `size` bytes, but not within a character of UTF-8.
std::string filled(std::string_view text, std::size_t size) {
  std::size_t end = std::min(text.size(), size);
  while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
  std::string field(text.substr(0, end));
  field.resize(size, '\0');
  return field;
}

std::string to_bytes(std::string_view hash, const Status& own) {
  return filled(hash, kHash) + filled(own.ok() ? "" : to_string(own.error().code), kCode) +
         filled(own.ok() ? "" : own.error().message, kMessage);
}

Word to_word(const std::string& bytes) {
  const auto text = [&](std::size_t begin, std::size_t size) {
    return bytes.substr(begin, std::min(size, bytes.find('\0', begin) - begin));
  };
  return {text(0, kHash), text(kHash, kCode), text(kHash + kCode, kMessage)};
}

std::string listed(const std::vector<std::size_t>& ranks) {  // "ranks 1, 2 and 5"
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = std::min(ranks.size(), kMostNamed);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

Error failure_of(const std::vector<Word>& words, std::size_t rank) {
  Error error{parse_error_code(words[rank].code).value_or(ErrorCode::internal),
              fmt::format("rank {} could not prepare: {}", rank, words[rank].message)};
  std::vector<std::size_t> others;
  for (std::size_t other = rank + 1; other < words.size(); ++other) {
    if (!words[other].code.empty()) others.push_back(other);
  }
  if (!others.empty()) error.notes.push_back("nor could " + listed(others));
  return error;
}

Status same_hash(const std::vector<Word>& words) {
  std::vector<std::size_t> different;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].hash != words[0].hash) different.push_back(rank);
  }
  if (different.empty()) return {};
  Error error{ErrorCode::mismatch,
              fmt::format("{} {} another file than rank 0", listed(different),
                          different.size() == 1 ? "has" : "have"),
              {fmt::format("rank 0: {}", words[0].hash)}};
  for (std::size_t i = 0; i < std::min(different.size(), kMostNamed); ++i) {
    error.notes.push_back(fmt::format("rank {}: {}", different[i], words[different[i]].hash));
  }
  return error;
}

}  // namespace

Status agree(Transport& transport, std::string_view family_hash, const Status& own,
             int timeout_seconds) {
  const auto gathered = transport.all_gather(to_bytes(family_hash, own), timeout_seconds);
  if (!own.ok()) return own;
  ATTN_RETURN_IF_ERROR(gathered);
  std::vector<Word> words;
  for (const std::string& bytes : *gathered) words.push_back(to_word(bytes));
  const auto failed =
      std::ranges::find_if(words, [](const Word& word) { return !word.code.empty(); });
  if (failed != words.end()) {
    return failure_of(words, static_cast<std::size_t>(failed - words.begin()));
  }
  return same_hash(words);
}

}  // namespace attn::ranks
