// The open documents, and the names of files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/lsp/analysis.h"
#include "tools/lsp/text.h"

namespace attn::tools::lsp {

// "file:///a%20b" -> "/a b". Another scheme ("untitled:x") is kept as a name of a file that does
// not exist.
std::string path_of(const std::string& uri);
std::string uri_of(const std::string& path);

// The results of the slow checks of one version.
struct Slow {
  std::unique_ptr<diag::Sink> found;  // nothing until the checks are done
  std::optional<MaskFacts> masks;     // nothing until they are drawn
};

struct Document {
  std::string uri;
  std::string path;
  std::string canonical;  // what the path leads to
  std::int64_t version = 0;
  Text text;
  std::shared_ptr<const Analysis> analysis{};  // of this text; null when it has to be made
  Slow slow{};                                 // of this analysis
  // The last one without syntax errors: names to complete with while others are being typed.
  std::shared_ptr<const Analysis> last_complete{};
  bool is_published = false;  // whether the diagnostics of this text were sent
  std::string published{};    // those sent last, with their version
};

// A place in a file, which may not be open.
struct FilePlace {
  std::string path;  // or "std:masks.attn"
  Span span;
  bool operator==(const FilePlace&) const = default;
};

class Workspace {
 public:
  void set_encoding(Encoding encoding) { encoding_ = encoding; }
  Encoding encoding() const { return encoding_; }

  Document& open(const std::string& uri, std::int64_t version, std::string text);
  void close(const std::string& uri) { documents_.erase(uri); }
  Document* find(const std::string& uri);
  std::map<std::string, Document>& documents() { return documents_; }

  // Makes the analysis of the text if there is none.
  static const Analysis& analyzed(Document& document);

  // Specs beside `path`, open or not, that may import it, at most kMostNeighbours; among them
  // `path`.
  static constexpr std::size_t kMostNeighbours = 200;
  struct Neighbours {
    std::vector<std::shared_ptr<const Analysis>> files;
    bool has_all = true;
  };
  Neighbours neighbours(const std::string& path);

  // The text of a file, as it is in the editor, or else on the disk as `source` has it.
  Text text_of(const support::Source& source) const;
  // Where the editor finds the file. One of the standard library is written into the folder of the
  // cache first, since it exists only in the program.
  std::string uri_of_source(const support::Source& source) const;
  const Document* document_at(const std::string& path) const;

 private:
  Encoding encoding_ = Encoding::utf16;
  std::map<std::string, Document> documents_;
};

}  // namespace attn::tools::lsp
