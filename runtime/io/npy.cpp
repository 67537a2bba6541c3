#include "runtime/io/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/io/element.h"
#include "runtime/io/file.h"
#include "runtime/io/layout.h"
#include "runtime/io/rows.h"

namespace attn::io {
namespace {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

constexpr std::size_t kMaxRank = 64;  // NumPy's own limit

Error bad_header(std::string what) {
  return Error{ErrorCode::io, fmt::format("cannot parse the .npy header: {}", what)};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<NpyHeader> header() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!eat('{')) return bad_header("it does not begin with '{'");
    while (!eat('}')) {
      ATTN_ASSIGN(std::string key, string());
      if (!eat(':')) return bad_header(fmt::format("expected ':' after '{}'", key));
      if (key == "descr" && !has_descr) {
        has_descr = true;
        ATTN_ASSIGN(header.descr, string());
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        ATTN_ASSIGN(header.fortran_order, boolean());
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        ATTN_ASSIGN(header.shape, shape());
      } else {
        return bad_header(fmt::format("unexpected key '{}'", key));
      }
      if (!eat(',') && !looking_at('}')) return bad_header("expected ',' between entries");
    }
    skip_space();
    if (!rest_.empty()) return bad_header("text after '}'");
    if (!has_descr || !has_order || !has_shape) {
      return bad_header("it must have 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) {
      rest_.remove_prefix(1);
    }
  }

  bool looking_at(char c) {
    skip_space();
    return !rest_.empty() && rest_[0] == c;
  }

  bool eat(char c) {
    if (!looking_at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<std::string> string() {
    skip_space();
    if (looking_at('[')) return bad_header("records (structured types) are not supported");
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"'))
      return bad_header("expected a string");
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return bad_header("unterminated string");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  Result<bool> boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(std::string_view(word).size());
      return value;
    }
    return bad_header("'fortran_order' is neither True nor False");
  }

  Result<std::int64_t> dimension() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) return bad_header("a dimension is not a valid size");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  Result<std::vector<std::int64_t>> shape() {
    std::vector<std::int64_t> dims;
    if (!eat('(')) return bad_header("'shape' is not a tuple");
    while (!eat(')')) {
      if (dims.size() == kMaxRank) return bad_header("more than 64 dimensions");
      ATTN_ASSIGN(const std::int64_t dim, dimension());
      dims.push_back(dim);
      if (!eat(',') && !looking_at(')')) return bad_header("expected ',' between dimensions");
    }
    return dims;
  }

  std::string_view rest_;
};

// Accepts what NumPy writes: the keys in any order, each once, with spaces and trailing commas
// where Python allows them. Errors: io.
Result<NpyHeader> parse_npy_header(std::string_view text) { return Parser(text).header(); }

// The header without padding and newline.
std::string format_npy_header(const NpyHeader& header) {
  std::string shape = fmt::format("{}", fmt::join(header.shape, ", "));
  if (header.shape.size() == 1) shape += ",";
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}", header.descr,
                     header.fortran_order ? "True" : "False", shape);
}

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kPrefix = 8;               // magic and version
constexpr std::size_t kMaxHeader = 1024 * 1024;  // far more than any rank needs
constexpr std::size_t kAlign = 64;               // of the data in written files

// An element type of the format. i2 has no DType, so it is widened when read.
struct Element {
  std::string_view code;
  DType dtype;
  std::size_t bytes;
};
constexpr std::array<Element, 9> kElements = {{{"f2", DType::f16, 2},
                                               {"f4", DType::f32, 4},
                                               {"f8", DType::f64, 8},
                                               {"i1", DType::i8, 1},
                                               {"u1", DType::u8, 1},
                                               {"i4", DType::i32, 4},
                                               {"i8", DType::i64, 8},
                                               {"b1", DType::boolean, 1},
                                               {"i2", DType::i32, 2}}};

Error bad(std::string what) { return Error{ErrorCode::io, std::move(what)}; }

Error in_file(const std::string& path, Error error) {
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Element> element_of(const std::string& descr) {
  if (descr.starts_with('>')) {
    return bad(
        fmt::format("big-endian elements ('{}') are not supported; write them as '<'", descr));
  }
  const bool prefixed = descr.starts_with('<') || descr.starts_with('|') || descr.starts_with('=');
  const std::string_view code = std::string_view(descr).substr(prefixed ? 1 : 0);
  for (const Element& element : kElements) {
    if (element.code == code) return element;
  }
  return bad(fmt::format("elements of type '{}' are not supported", descr));
}

// Returns the header's text and advances `bytes` past it.
Result<std::string_view> split_header(std::span<const std::byte>& bytes) {
  if (bytes.size() < kPrefix || !as_text(bytes).starts_with(kMagic)) {
    const bool is_archive = as_text(bytes).starts_with("PK\x03\x04");
    return bad(is_archive
                   ? "not a .npy file but an archive of them (.npz): save an array by itself, with "
                     "numpy.save(\"x.npy\", numpy.load(\"x.npz\")[\"NAME\"])"
                   : "not a .npy file (it does not begin with \\x93NUMPY)");
  }
  const int version = std::to_integer<int>(bytes[6]);
  if (version != 1 && version != 2) {
    return bad(fmt::format("version {}.{} of the .npy format is not supported; 1.0 and 2.0 are",
                           version, std::to_integer<int>(bytes[7])));
  }
  const std::size_t field = version == 1 ? 2 : 4;
  if (bytes.size() < kPrefix + field) return bad("the .npy file ends inside its header");
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kPrefix, field);
  if (length > kMaxHeader) return bad("the .npy header is longer than 1 MiB");
  if (length > bytes.size() - kPrefix - field) return bad("the .npy file ends inside its header");
  const std::string_view text = as_text(bytes.subspan(kPrefix + field, length));
  bytes = bytes.subspan(kPrefix + field + length);
  return text;
}

// Bytes of data according to the header; nullopt if they cannot fit in memory.
std::optional<std::size_t> data_bytes(const NpyHeader& header, const Element& element) {
  std::size_t bytes = element.bytes;
  bool empty = false, overflow = false;
  for (std::int64_t dim : header.shape) {
    empty = empty || dim == 0;
    overflow = __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes) || overflow;
  }
  if (empty) return 0;
  return overflow ? std::nullopt : std::optional(bytes);
}

Status check_size(const NpyHeader& header, const Element& element, std::size_t given) {
  const std::string shape = fmt::format("{}", fmt::join(header.shape, ", "));
  const std::optional<std::size_t> needed = data_bytes(header, element);
  if (!needed) return bad(fmt::format("({}) elements do not fit in memory", shape));
  if (*needed == given) return {};
  return bad(fmt::format("the file has {} bytes of data, but ({}) elements of '{}' need {}", given,
                         shape, header.descr, *needed));
}

double load_element(const Element& element, const std::byte* bytes) {
  if (element.code != "i2") return load(element.dtype, bytes);
  std::int16_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t axis = 1; axis < dims.size(); ++axis) {
    strides[axis] = strides[axis - 1] * dims[axis - 1];
  }
  return strides;
}

// Converts column-major to row-major values.
template <typename Value>
std::vector<Value> to_c_order(const std::vector<Value>& values,
                              const std::vector<std::int64_t>& dims) {
  const std::vector<std::int64_t> strides = fortran_strides(dims);
  std::vector<Value> ordered(values.size());
  for_each_element(dims, strides, [&](std::int64_t index, std::int64_t offset) {
    ordered[static_cast<std::size_t>(index)] = values[static_cast<std::size_t>(offset)];
  });
  return ordered;
}

HostTensor wide_elements(std::span<const std::byte> bytes, const NpyHeader& header) {
  std::vector<std::int64_t> elements(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(elements.data(), bytes.data(), bytes.size());
  if (header.fortran_order && !bytes.empty()) elements = to_c_order(elements, header.shape);
  return tensor_of_wide(header.shape, std::move(elements));
}

}  // namespace

Result<HostTensor> parse_npy(std::span<const std::byte> bytes) {
  ATTN_ASSIGN(const std::string_view text, split_header(bytes));
  ATTN_ASSIGN(const NpyHeader header, parse_npy_header(text));
  ATTN_ASSIGN(const Element element, element_of(header.descr));
  ATTN_RETURN_IF_ERROR(check_size(header, element, bytes.size()));
  if (element.dtype == DType::i64) return wide_elements(bytes, header);
  HostTensor tensor{element.dtype, header.shape, {}};
  tensor.values.resize(bytes.size() / element.bytes);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = load_element(element, bytes.data() + i * element.bytes);
  }
  if (header.fortran_order && !bytes.empty())
    tensor.values = to_c_order(tensor.values, tensor.dims);
  return tensor;
}

Result<std::vector<std::byte>> format_npy(const HostTensor& tensor) {
  const auto* element = std::find_if(kElements.begin(), kElements.end(),
                                     [&](const Element& e) { return e.dtype == tensor.dtype; });
  if (element == kElements.end()) {
    return {ErrorCode::invalid_argument,
            fmt::format("the .npy format has no {}; write f32", to_string(tensor.dtype))};
  }
  const std::string_view order = element->bytes == 1 ? "|" : "<";
  std::string header =
      format_npy_header({fmt::format("{}{}", order, element->code), false, tensor.dims});
  // Any rank up to NumPy's limit fits the two-byte length of version 1.
  const std::size_t total = (kPrefix + 2 + header.size() + 1 + kAlign - 1) / kAlign * kAlign;
  header.append(total - kPrefix - 2 - header.size() - 1, ' ').append("\n");
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string head = std::string(kMagic) + std::string("\x01\x00", 2);
  head.append(reinterpret_cast<const char*>(&length), 2).append(header);
  ATTN_ASSIGN(const std::vector<std::byte> data,
              pack(tensor, tensor.dims, dense_strides(tensor.dims), tensor.dtype));
  std::vector<std::byte> bytes(head.size() + data.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  if (!data.empty()) std::memcpy(bytes.data() + head.size(), data.data(), data.size());
  return bytes;
}

Result<HostTensor> read_npy(const std::string& path) {
  ATTN_ASSIGN(const std::vector<std::byte> bytes, read_file(path, kMagic));
  Result<HostTensor> tensor = parse_npy(bytes);
  if (!tensor.ok()) return in_file(path, tensor.error());
  return tensor;
}

Status write_npy(const std::string& path, const HostTensor& tensor) {
  Result<std::vector<std::byte>> bytes = format_npy(tensor);
  if (!bytes.ok()) return in_file(path, bytes.error());
  return write_file(path, *bytes);
}

}  // namespace attn::io
