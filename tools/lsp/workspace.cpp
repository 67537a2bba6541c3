#include "tools/lsp/workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/cache/folder.h"
#include "runtime/io/file.h"
#include "tools/spec.h"

namespace attn::tools::lsp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kScheme = "file://";
constexpr std::string_view kStandard = "std:";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) i += 2;
    out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
  }
  return out;
}

// Names of files in reports are as written: compare what they lead to.
std::string canonical(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found.string();
}

}  // namespace

std::string path_of(const std::string& uri) {
  if (!uri.starts_with(kScheme)) return decoded(uri);
  const std::string_view rest = std::string_view(uri).substr(kScheme.size());
  return decoded(rest.substr(std::min(rest.find('/'), rest.size())));
}

std::string uri_of(const std::string& path) {
  std::string uri(kScheme);
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("-._~/").find(c) != std::string_view::npos;
    uri += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

Document& Workspace::open(const std::string& uri, std::int64_t version, std::string text) {
  documents_.erase(uri);
  const std::string path = path_of(uri);
  Document document{uri, path, canonical(path), version, Text(std::move(text), encoding_)};
  return documents_.emplace(uri, std::move(document)).first->second;
}

Document* Workspace::find(const std::string& uri) {
  const auto found = documents_.find(uri);
  return found == documents_.end() ? nullptr : &found->second;
}

const Document* Workspace::document_at(const std::string& path) const {
  const std::string file = canonical(path);
  const auto found = std::ranges::find_if(documents_, [&](const auto& entry) {
    return entry.second.path == path || entry.second.canonical == file;
  });
  return found == documents_.end() ? nullptr : &found->second;
}

const Analysis& Workspace::analyzed(Document& document) {
  if (!document.analysis) {
    document.analysis = analyze({document.path, document.text.bytes()});
    document.slow = {};
    if (document.analysis->is_complete) document.last_complete = document.analysis;
  }
  return *document.analysis;
}

Workspace::Neighbours Workspace::neighbours(const std::string& path) {
  Neighbours all;
  std::vector<std::string> seen;
  for (auto& [uri, document] : documents_) {
    analyzed(document);
    all.files.push_back(document.analysis);
    seen.push_back(document.canonical);
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(path).parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    if (is_spec_name(entry->path().filename().string())) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    if (std::ranges::find(seen, canonical(file.string())) != seen.end()) continue;
    all.has_all = all.files.size() < kMostNeighbours;
    if (!all.has_all) break;
    Result<support::Source> source = support::Source::read(file.string());
    if (source.ok()) all.files.push_back(analyze(std::move(*source)));
  }
  return all;
}

Text Workspace::text_of(const support::Source& source) const {
  return {std::string(source.text()), encoding_};
}

std::string Workspace::uri_of_source(const support::Source& source) const {
  const std::string& name = source.name();
  if (!name.starts_with(kStandard)) {
    const Document* open = document_at(name);
    if (open) return open->uri;
    std::error_code error;
    const fs::path absolute = fs::absolute(name, error);
    return uri_of(error ? name : absolute.lexically_normal().string());
  }
  const std::string folder = cache::default_folder();
  if (folder.empty()) return "";
  const fs::path file = fs::path(folder + "-lib") / ATTN_VERSION / name.substr(kStandard.size());
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  const Result<support::Source> there = support::Source::read(file.string());
  if (there.ok() && there->text() == source.text()) return uri_of(file.string());
  const Status written = io::write_file(file.string(), std::as_bytes(std::span(source.text())));
  return written.ok() ? uri_of(file.string()) : "";
}

}  // namespace attn::tools::lsp
