#include "tools/page/page.h"

#include <kainjow/mustache.hpp>

#include "compiler/support/embedded.h"
#include "runtime/base/check.h"

namespace attn::tools::page {

std::span<const support::EmbeddedFile> texts();

namespace {

namespace mustache = kainjow::mustache;

mustache::data data_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: {
      mustache::object object;
      for (const auto& [key, value] : json.items()) {
        object.emplace(key, data_of(value));
        if (value.is_array()) object.emplace("has_" + key, mustache::data(!value.empty()));
      }
      return object;
    }
    case Json::value_t::array: {
      mustache::list list;
      list.reserve(json.size());
      for (const Json& value : json) list.push_back(data_of(value));
      return list;
    }
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return text.empty() ? mustache::data(false) : mustache::data(text);
    }
    case Json::value_t::boolean: return mustache::data(json.get<bool>());
    case Json::value_t::null: return mustache::data(false);
    default: return json.dump();
  }
}

std::string text_of(std::string_view name) {
  const std::string_view text = support::text_of(texts(), name);
  ATTN_CHECK(!text.empty(), name);
  return std::string(text);
}

// JSON for a script element: no `<` in it, so neither the element nor a comment ends or begins.
std::string script_json(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

// Every template may include every other by its file's name.
void add_templates(mustache::data& data) {
  for (const support::EmbeddedFile& file : texts()) {
    data.set(std::string(file.name), mustache::partial([&file] { return std::string(file.text); }));
  }
}

}  // namespace

std::string page_of(const Json& view) {
  mustache::data data = data_of(view);
  add_templates(data);
  data.set("style", text_of("style.css") + view.value("colours", ""));
  data.set("script", text_of("expressions.js") + text_of("mask.js") + text_of("page.js"));
  data.set("data", script_json(view.at("data")));
  mustache::mustache page(text_of("page.html"));
  std::string text = page.render(data);
  ATTN_CHECK(page.is_valid(), page.error_message());
  return text;
}

}  // namespace attn::tools::page
