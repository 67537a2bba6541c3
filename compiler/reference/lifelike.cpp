#include "compiler/reference/lifelike.h"

#include <algorithm>

#include "runtime/io/random.h"

namespace attn::reference {
namespace {

using ir::Dim;

constexpr std::int64_t kDocuments = 7;  // about as many, where nothing is declared

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  // A number from low to high.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto choices = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(io::random_word(seed_, next_++) % choices);
  }
  bool one_of(std::int64_t count) { return between(1, count) == 1; }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

std::int64_t declared(const ir::Attention& attention, const std::optional<ir::ExprId>& limit,
                      std::int64_t otherwise) {
  if (!limit) return otherwise;
  return std::max<std::int64_t>(
      1, ir::fold_integer(attention.dag, *limit, attention.dims).value_or(otherwise));
}

// Sorted ids along the last axis, of `size`, in every row.
void write_documents(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                     std::int64_t size, Dice& dice, std::vector<double>& values) {
  const std::int64_t longest = declared(attention, tensor.longest_run, size);
  const std::int64_t needed = (size + longest - 1) / longest;
  const std::int64_t most = declared(attention, tensor.runs, std::max(2 * kDocuments, 2 * needed));
  const std::int64_t mean = std::max<std::int64_t>(
      1, std::min(longest, size / std::min(most, std::max(kDocuments, needed))));
  for (std::size_t at = 0; at < values.size();) {
    std::int64_t left = size, documents = most;
    for (std::int64_t id = 0; left > 0; ++id, --documents) {
      const std::int64_t high = std::min(longest, left);
      const std::int64_t low = std::clamp<std::int64_t>(left - (documents - 1) * longest, 1, high);
      const std::int64_t wanted = dice.between(1 + mean / 4, 1 + 7 * mean / 4);
      const std::int64_t length = documents == 1 ? left : std::clamp(wanted, low, high);
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at), length,
                  static_cast<double>(id));
      at += static_cast<std::size_t>(length);
      left -= length;
    }
  }
}

void write_offsets(std::int64_t most, std::int64_t size, Dice& dice, std::vector<double>& values) {
  for (double& value : values) value = static_cast<double>(dice.between(0, most));
  for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(size)) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row);
    const auto end = begin + size;
    *begin = 0;
    *(end - 1) = static_cast<double>(most);
    std::sort(begin, end);
  }
}

void write_blocks(std::int64_t height, std::int64_t width, Dice& dice,
                  std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % width;
    const std::int64_t row = static_cast<std::int64_t>(i) / width % height;
    values[i] = row * width / height == column || dice.one_of(3) ? 1 : 0;
  }
}

}  // namespace

std::vector<double> lifelike(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                             const std::vector<std::int64_t>& dims, std::uint64_t seed) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  std::vector<double> values(static_cast<std::size_t>(count));
  if (values.empty()) return values;
  Dice dice(seed);
  const std::int64_t rows = attention.dims[Dim::Sq], columns = attention.dims[Dim::Skv];
  const std::int64_t last = dims.empty() ? 1 : dims.back();
  if (const auto& gather = attention.gather;
      gather && (tensor.name == gather->keys || tensor.name == gather->counts)) {
    const bool counts = tensor.name == gather->counts;
    const std::int64_t high = counts ? attention.keys_of_row() : columns - 1;
    const std::int64_t low = std::min<std::int64_t>(counts ? 1 : 0, high);  // -1: there is no key
    for (double& value : values) value = static_cast<double>(dice.between(low, high));
    return values;
  }
  const bool of_places = !dims.empty() && last > 1 && (last == rows || last == columns);
  if (tensor.dtype == DType::boolean) {
    const bool is_map = dims.size() > 2 || (dims.size() == 2 && dims[0] == rows);
    if (is_map) {
      write_blocks(dims[dims.size() - 2], last, dice, values);
    } else {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::int64_t>(i) % last == 0 || dice.one_of(16) ? 1 : 0;
      }
    }
  } else if (of_places) {
    write_documents(attention, tensor, last, dice, values);
  } else if (tensor.monotone) {
    write_offsets(columns, last, dice, values);
  } else {
    const std::int64_t most = tensor.name == ir::kLengthsQ ? rows : columns;
    for (double& value : values) {
      value = static_cast<double>(dice.between((most + 7) / 8, most));
    }
  }
  return values;
}

}  // namespace attn::reference
