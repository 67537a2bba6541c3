#include "tools/lsp/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "compiler/support/text.h"
#include "tools/lsp/checker.h"
#include "tools/lsp/features.h"
#include "tools/lsp/messages.h"

namespace attn::tools::lsp {
namespace {

using std::chrono::milliseconds;

constexpr int kIncremental = 2;

// The flag at a place of a JSON value that need not exist; false without it.
bool flag(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json.at(at).is_boolean() && json.at(at).get<bool>();
}

bool lists(const Json& json, const char* pointer, const char* word) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json.at(at).is_array()) return false;
  return std::ranges::any_of(json.at(at), [&](const Json& one) { return one == word; });
}

// UTF-8, in which texts are kept, if the client can; UTF-16, which every client can, if not.
Encoding encoding_for(const Json& capabilities) {
  constexpr const char* kOffered = "/general/positionEncodings";
  if (lists(capabilities, kOffered, "utf-8")) return Encoding::utf8;
  return Encoding::utf16;
}

Client client_of(const Json& capabilities) {
  return {
      .has_snippets = flag(capabilities, "/textDocument/completion/completionItem/snippetSupport"),
      .has_document_changes = flag(capabilities, "/workspace/workspaceEdit/documentChanges"),
      .has_nested_symbols =
          flag(capabilities, "/textDocument/documentSymbol/hierarchicalDocumentSymbolSupport"),
      .has_markdown = lists(capabilities, "/textDocument/hover/contentFormat", "markdown")};
}

// of the server
Json capabilities(Encoding encoding) {
  return {{"positionEncoding", encoding == Encoding::utf8 ? "utf-8" : "utf-16"},
          {"textDocumentSync",
           {{"openClose", true}, {"change", kIncremental}, {"save", {{"includeText", false}}}}},
          {"hoverProvider", true},
          {"completionProvider", {{"triggerCharacters", {"\"", ":"}}}},
          {"definitionProvider", true},
          {"referencesProvider", true},
          {"documentHighlightProvider", true},
          {"documentSymbolProvider", true},
          {"foldingRangeProvider", true},
          {"codeActionProvider", {{"codeActionKinds", {"quickfix"}}}},
          {"documentFormattingProvider", true},
          {"renameProvider", {{"prepareProvider", true}}},
          {"inlayHintProvider", true},
          {"semanticTokensProvider", {{"legend", token_legend()}, {"full", true}}}};
}

constexpr milliseconds kIdle{60};        // after the last change, until the slow checks begin
constexpr milliseconds kPatience{1500};  // for the slow checks, of a request that shows masks

// "" if the message is not one.
std::string method_of(const Json& message) {
  const bool has_one =
      message.is_object() && message.contains("method") && message["method"].is_string();
  return has_one ? message["method"].get<std::string>() : "";
}

bool is_id(const Json& json) { return json.is_string() || json.is_number_integer(); }

// If the message cancels a request, its id as JSON text.
std::optional<std::string> cancelled_by(const Json& message) {
  const Json::json_pointer id("/params/id");
  if (method_of(message) != "$/cancelRequest" || message.contains("id")) return std::nullopt;
  if (!message.contains(id) || !is_id(message[id])) return std::nullopt;
  return message[id].dump();
}

struct Feature {
  Json (*answer)(const Request& request);
  bool (*waits)(const Request& request) = nullptr;  // for the slow checks
};

bool always(const Request&) { return true; }

const std::map<std::string, Feature, std::less<>>& features() {
  static const std::map<std::string, Feature, std::less<>> all = {
      {"textDocument/codeAction", {code_actions}},
      {"textDocument/completion", {completion}},
      {"textDocument/definition", {definition}},
      {"textDocument/documentHighlight", {highlights}},
      {"textDocument/documentSymbol", {document_symbols}},
      {"textDocument/foldingRange", {folding_ranges}},
      {"textDocument/formatting", {formatting}},
      {"textDocument/hover", {hover, shows_masks}},
      {"textDocument/inlayHint", {inlay_hints, always}},
      {"textDocument/prepareRename", {prepare_rename}},
      {"textDocument/references", {references}},
      {"textDocument/rename", {rename}},
      {"textDocument/semanticTokens/full", {semantic_tokens}},
  };
  return all;
}

class Server {
 public:
  Server(int input, int output)
      : reader_(input), writer_(output), checker_(queue_), thread_([this] { receive(); }) {}

  Served run() {
    while (!is_over_ && !writer_.is_broken()) {
      catch_up();
      std::optional<Event> event = queue_.pop(deadline());
      if (event) {
        std::visit([this](auto& one) { take(one); }, *event);
      }
      on_time();
    }
    // The reader ends at `exit` and at the end of the input; if the output broke first, it may wait
    // for a message that never comes.
    if (is_over_) {
      thread_.join();
    } else {
      thread_.detach();
    }
    return {exit_code_, checker_.is_busy() || !is_over_};
  }

 private:
  // A request that waits for the slow checks.
  struct Pending {
    Json id;
    const Feature* feature;
    Json params;
    std::shared_ptr<const Analysis> analysis;
    Clock::time_point until;
  };

  // Cancellations overtake the requests that are still in the queue.
  void receive() {
    while (const std::optional<std::string> body = reader_.read()) {
      Message message = parse_message(*body);
      const std::string method = method_of(message.json);
      if (const auto id = cancelled_by(message.json)) queue_.cancel(*id);
      queue_.push(Received{std::move(message)});
      if (method == "exit") return;
    }
    queue_.push(Ended{});
  }

  void take(const Ended&) { is_over_ = true; }

  void take(const Received& received) {
    const Json& message = received.message.json;
    if (message.is_discarded()) {
      return writer_.fail(nullptr, {RpcCode::parse_error, "the message is not JSON"});
    }
    if (received.message.is_too_deep) return refuse(message);
    if (const auto id = cancelled_by(message)) return cancel(*id);
    const std::string method = method_of(message);
    const bool has_id = message.is_object() && message.contains("id");
    const bool is_answer = has_id && (message.contains("result") || message.contains("error"));
    if (method.empty() && is_answer) return;
    if (method.empty() || (has_id && !is_id(message["id"]))) {
      return writer_.fail(nullptr, {RpcCode::invalid_request, "not a message of JSON-RPC 2.0"});
    }
    const Json params = message.value("params", Json::object());
    if (has_id) {
      request(message["id"], method, params);
    } else {
      notification(method, params);
    }
  }

  // A message that is nested too deeply, without what is too deep.
  void refuse(const Json& message) {
    const std::string what = fmt::format("the message is more than {} deep", kMostNesting);
    const bool is_request = !method_of(message).empty() && message.contains("id");
    if (is_request && is_id(message["id"])) {
      return writer_.fail(message["id"], {RpcCode::invalid_params, what});
    }
    writer_.fail(nullptr, {RpcCode::invalid_request, what});
  }

  // The request was answered, or it waits for slow checks.
  void cancel(const std::string& id) {
    (void)queue_.take_cancelled(id);
    std::erase_if(pending_, [&](const Pending& one) {
      if (one.id.dump() != id) return false;
      writer_.fail(one.id, {RpcCode::cancelled, "cancelled"});
      return true;
    });
  }

  void request(const Json& id, const std::string& method, const Json& params) {
    try {
      if (queue_.take_cancelled(id.dump())) throw RpcError{RpcCode::cancelled, "cancelled"};
      const std::optional<Json> result = answer(id, method, params);
      if (result) writer_.respond(id, *result);
    } catch (const RpcError& error) {
      writer_.fail(id, error);
    } catch (const Json::exception& error) {
      writer_.fail(id, {RpcCode::invalid_params, error.what()});
    }
  }

  // The answer; nothing if it is given later.
  std::optional<Json> answer(const Json& id, const std::string& method, const Json& params) {
    if (method == "initialize") return initialize(params);
    if (!is_initialized_) throw RpcError{RpcCode::not_initialized, "the server is not initialized"};
    if (is_shut_down_) throw RpcError{RpcCode::invalid_request, "the server is shut down"};
    if (method == "shutdown") {
      is_shut_down_ = true;
      return Json(nullptr);
    }
    const auto found = features().find(method);
    if (found == features().end()) {
      throw RpcError{RpcCode::method_not_found,
                     fmt::format("unknown method {}", support::quoted(method))};
    }
    Document& document = document_of(params);
    const Request request{workspace_, client_, document, Workspace::analyzed(document), params};
    if (found->second.waits && found->second.waits(request) && !is_known(document)) {
      schedule(document);
      pending_.push_back({id, &found->second, params, document.analysis, Clock::now() + kPatience});
      return std::nullopt;
    }
    return found->second.answer(request);
  }

  Json initialize(const Json& params) {
    if (is_initialized_) throw RpcError{RpcCode::invalid_request, "initialized already"};
    const Json& able = params.at("capabilities");
    client_ = client_of(able);
    workspace_.set_encoding(encoding_for(able));
    is_initialized_ = true;
    return {{"capabilities", capabilities(workspace_.encoding())},
            {"serverInfo", {{"name", "attnc"}, {"version", ATTN_VERSION}}}};
  }

  Document& document_of(const Json& params) {
    const std::string uri = params.at("textDocument").at("uri");
    Document* document = workspace_.find(uri);
    if (!document) {
      throw RpcError{RpcCode::invalid_params, fmt::format("{} is not open", support::quoted(uri))};
    }
    return *document;
  }

  void notification(const std::string& method, const Json& params) {
    if (method == "exit") {
      is_over_ = true;
      exit_code_ = is_shut_down_ ? 0 : 1;
    }
    if (!is_initialized_ || is_shut_down_) return;
    try {
      if (method == "textDocument/didOpen") open(params);
      if (method == "textDocument/didChange") change(params);
      if (method == "textDocument/didClose") close(params);
      if (method == "textDocument/didSave" || method == "workspace/didChangeWatchedFiles") reread();
    } catch (const RpcError& error) {
      fmt::print(stderr, "attnc lsp: {}: {}\n", method, error.message);
    } catch (const Json::exception& error) {
      fmt::print(stderr, "attnc lsp: {}: {}\n", method, error.what());
    }
  }

  void open(const Json& params) {
    const Json& opened = params.at("textDocument");
    const std::string uri = opened.at("uri");
    const auto version = opened.at("version").get<std::int64_t>();
    const std::string text = opened.at("text");
    if (Document* before = workspace_.find(uri)) forget(*before);
    workspace_.open(uri, version, text);
  }

  void change(const Json& params) {
    Document& document = document_of(params);
    forget(document);
    document.version = params.at("textDocument").at("version").get<std::int64_t>();
    for (const Json& one : params.at("contentChanges")) {
      const std::string text = one.at("text");
      if (one.contains("range")) {
        document.text.replace(range_of(one.at("range")), text);
      } else {
        document.text = Text(text, workspace_.encoding());
      }
    }
  }

  void close(const Json& params) {
    Document& document = document_of(params);
    forget(document);
    publish(document, Json::array(), false);
    workspace_.close(document.uri);
  }

  // Imported files may have changed.
  void reread() {
    for (auto& [uri, document] : workspace_.documents()) forget(document);
  }

  // The analysis of a text that has changed, and the requests that wait for it.
  void forget(Document& document) {
    document.is_published = false;
    if (!document.analysis) return;
    const auto old = document.analysis;
    document.analysis = nullptr;
    document.slow = {};
    std::erase_if(pending_, [&](const Pending& one) {
      if (one.analysis != old) return false;
      writer_.fail(one.id, {RpcCode::content_modified, "the text has changed"});
      return true;
    });
  }

  // While no message waits: of several changes only the last is analyzed, and many open documents
  // do not delay an answer.
  void catch_up() {
    for (auto& [uri, document] : workspace_.documents()) {
      if (!queue_.is_empty()) return;
      show(document);
    }
  }

  // Analyzes and publishes what has changed.
  void show(Document& document) {
    if (document.is_published) return;
    document.is_published = true;
    Workspace::analyzed(document);
    publish(document, diagnostics_of(workspace_, document, found_in(document)), true);
    if (!document.slow.found) schedule(document);
  }

  void schedule(const Document& document) {
    if (is_known(document)) return;
    if (due_.contains(document.uri) && due_[document.uri].analysis == document.analysis) return;
    due_[document.uri] = {document.analysis, Clock::now() + kIdle};
  }

  // Whether the slow checks are done, or would say no more.
  static bool is_known(const Document& document) {
    const Slow& slow = document.slow;
    const diag::Sink& found = *document.analysis->found;
    return (found.has_errors() && !found.is_stopped()) || (slow.found && slow.masks);
  }

  void publish(Document& document, const Json& list, bool with_version) {
    const std::string text = list.dump(-1, ' ', false, Json::error_handler_t::replace);
    const std::string key = fmt::format("{} {}", document.version, text);
    if (key == document.published) return;
    document.published = key;
    Json params = {{"uri", document.uri}, {"diagnostics", list}};
    if (with_version) params["version"] = document.version;
    writer_.notify("textDocument/publishDiagnostics", params);
  }

  void take(Checked& checked) {
    for (auto& [uri, document] : workspace_.documents()) {
      if (document.analysis != checked.analysis) continue;
      if (checked.found) {
        document.slow.found = std::move(checked.found);
        document.is_published = false;
      }
      if (checked.masks) document.slow.masks = std::move(*checked.masks);
      if (is_known(document)) {
        show(document);
        answer_pending(document);
      }
      return;
    }
  }

  void answer_pending(const Document& document) {
    std::erase_if(pending_, [&](const Pending& one) {
      if (one.analysis != document.analysis) return false;
      answer_late(one);
      return true;
    });
  }

  void answer_late(const Pending& one) {
    try {
      if (queue_.take_cancelled(one.id.dump())) throw RpcError{RpcCode::cancelled, "cancelled"};
      Document& document = document_of(one.params);
      if (document.analysis != one.analysis) {
        throw RpcError{RpcCode::content_modified, "the text has changed"};
      }
      writer_.respond(one.id, one.feature->answer(
                                  {workspace_, client_, document, *document.analysis, one.params}));
    } catch (const RpcError& error) {
      writer_.fail(one.id, error);
    } catch (const Json::exception& error) {
      writer_.fail(one.id, {RpcCode::invalid_params, error.what()});
    }
  }

  // When to do something if no message comes.
  std::optional<Clock::time_point> deadline() const {
    std::optional<Clock::time_point> next;
    const auto consider = [&](Clock::time_point time) {
      if (!next || time < *next) next = time;
    };
    // While it is busy, its result is the next event.
    if (!checker_.is_busy()) {
      for (const auto& [uri, due] : due_) consider(due.time);
    }
    for (const Pending& one : pending_) consider(one.until);
    return next;
  }

  void on_time() {
    const Clock::time_point now = Clock::now();
    std::erase_if(pending_, [&](const Pending& one) {
      if (one.until > now) return false;
      answer_late(one);
      return true;
    });
    std::erase_if(due_, [&](const auto& entry) {
      const auto& [uri, due] = entry;
      const Document* document = workspace_.find(uri);
      if (!document || document->analysis != due.analysis) return true;
      if (due.time > now || checker_.is_busy()) return false;
      checker_.start(due.analysis);
      return true;
    });
  }

  struct Due {
    std::shared_ptr<const Analysis> analysis;
    Clock::time_point time;
  };

  EventQueue queue_;
  MessageReader reader_;
  MessageWriter writer_;
  Checker checker_;
  Workspace workspace_;
  Client client_;
  std::vector<Pending> pending_;
  std::map<std::string, Due> due_;
  bool is_initialized_ = false;
  bool is_shut_down_ = false;
  bool is_over_ = false;
  int exit_code_ = 0;
  std::thread thread_;  // last: it uses the queue
};

}  // namespace

Served serve(int input, int output) {
  // The server must not be destroyed while a thread uses it.
  auto server = std::make_unique<Server>(input, output);
  const Served served = server->run();
  if (served.is_busy) (void)server.release();
  return served;
}

}  // namespace attn::tools::lsp
