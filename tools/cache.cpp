#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <map>

#include "runtime/cache/file_store.h"
#include "runtime/cache/folder.h"
#include "runtime/cudnn/library.h"
#include "runtime/graph/listing.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/report.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace cache_command {
namespace {

using Days = std::chrono::duration<double, std::ratio<86400>>;

struct Options {
  std::uint64_t max_bytes = cache::FileLimits().bytes;
  double max_days = Days(cache::FileLimits().age).count();
  bool remove = false;
  Format format = Format::text;
};

Result<cache::FileStore> open_store() {
  std::string folder = cache::default_folder();
  if (!folder.empty()) return cache::FileStore(std::move(folder));
  return Error{
      ErrorCode::invalid_argument, "there is no cache folder", {"set ATTN_CACHE_DIR or HOME"}};
}

std::string time_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::string count_text(std::size_t count, const char* of_one, const char* of_many) {
  return fmt::format("{} {}", count, count == 1 ? of_one : of_many);
}

// A file and the plan in it, or the error of reading it.
struct Entry {
  cache::StoredFile file;
  Result<plan::Plan> plan;
};

// Most recently used first.
Result<std::vector<Entry>> entries_of(const cache::FileStore& store) {
  ATTN_ASSIGN(const std::vector<cache::StoredFile> files, store.list());
  std::vector<Entry> entries;
  for (const cache::StoredFile& file : files) {
    entries.push_back({file, cache::FileStore::read(file)});
  }
  return entries;
}

std::string_view direction_of(const plan::Plan& plan) {
  return to_string(plan::direction_of(plan.program));
}

Json entry_json(const Entry& entry) {
  Json json = {{"signature", entry.file.hash.to_hex()},
               {"file", entry.file.path},
               {"bytes", entry.file.bytes},
               {"used", time_text(entry.file.used)}};
  if (!entry.plan.ok()) {
    json["error"] = error_json(entry.plan.error(), nullptr);
    return json;
  }
  json.update({{"name", entry.plan->spec_name},
               {"direction", direction_of(*entry.plan)},
               {"target", entry.plan->target.name},
               {"cudnn_version", entry.plan->cudnn_version}});
  return json;
}

std::string entries_text(const std::vector<Entry>& entries) {
  Table table({{"signature"},
               {"name"},
               {"direction"},
               {"target"},
               {"cuDNN"},
               {"file", Align::right},
               {"last used"}});
  for (const auto& [file, plan] : entries) {
    std::vector<Table::Cell> cells = {file.hash.to_hex(), "unreadable", "", "", ""};
    if (plan.ok()) {
      cells = {file.hash.to_hex(), escaped(plan->spec_name), std::string(direction_of(*plan)),
               escaped(plan->target.name), cudnn_text(plan->cudnn_version)};
    }
    cells.push_back(bytes_text(static_cast<std::int64_t>(file.bytes)));
    cells.push_back(time_text(file.used));
    table.add(std::move(cells));
  }
  return table.empty() ? "no cached plans\n" : table.to_text("", output_paint());
}

// Count and size of the plans for one GPU and cuDNN version.
struct Total {
  std::size_t plans = 0;
  std::uint64_t bytes = 0;

  void add(const cache::StoredFile& file) {
    ++plans;
    bytes += file.bytes;
  }
  Json to_json() const { return {{"plans", plans}, {"bytes", bytes}}; }
  std::string to_text() const {
    return fmt::format("{}, {}", count_text(plans, "plan", "plans"),
                       bytes_text(static_cast<std::int64_t>(bytes)));
  }
};

struct Totals {
  explicit Totals(const std::vector<Entry>& entries) {
    for (const auto& [file, plan] : entries) {
      all.add(file);
      if (plan.ok()) {
        of[{plan->target.name, plan->cudnn_version}].add(file);
      } else {
        unreadable.add(file);
      }
    }
  }

  Total all, unreadable;
  std::map<std::pair<std::string, std::int64_t>, Total> of;
};

Status path(const cache::FileStore& store, const Options& options) {
  if (options.format == Format::json) {
    print_json({{"folder", store.folder()}});
  } else {
    fmt::print("{}\n", store.folder());
  }
  return {};
}

Status list(const cache::FileStore& store, const Options& options) {
  ATTN_ASSIGN(const std::vector<Entry> entries, entries_of(store));
  if (options.format == Format::text) {
    fmt::print("{}", entries_text(entries));
    return {};
  }
  Json plans = Json::array();
  for (const Entry& entry : entries) plans.push_back(entry_json(entry));
  print_json({{"folder", store.folder()}, {"plans", plans}});
  return {};
}

Json info_json(const cache::FileStore& store, const Totals& totals) {
  Json parts = Json::array();
  for (const auto& [key, total] : totals.of) {
    Json part = {{"target", key.first}, {"cudnn_version", key.second}};
    part.update(total.to_json());
    parts.push_back(std::move(part));
  }
  Json json = {{"folder", store.folder()}};
  json.update(totals.all.to_json());
  json.update({{"unreadable", totals.unreadable.plans},
               {"max_bytes", store.limits().bytes},
               {"max_age_days", Days(store.limits().age).count()},
               {"targets", parts}});
  return json;
}

std::string info_text(const cache::FileStore& store, const Totals& totals) {
  std::string text = fmt::format(
      "folder  {}\nholds   {}\nlimits  {}, {:g} days since the last use\n", store.folder(),
      totals.all.to_text(), bytes_text(static_cast<std::int64_t>(store.limits().bytes)),
      Days(store.limits().age).count());
  for (const auto& [key, total] : totals.of) {
    text += fmt::format("  {} with cuDNN {}: {}\n", shown(key.first), cudnn_text(key.second),
                        total.to_text());
  }
  if (totals.unreadable.plans > 0) {
    text += fmt::format("  unreadable: {}\n", totals.unreadable.to_text());
  }
  return text;
}

Status info(const cache::FileStore& store, const Options& options) {
  ATTN_ASSIGN(const std::vector<Entry> entries, entries_of(store));
  const Totals totals(entries);
  if (options.format == Format::json) {
    print_json(info_json(store, totals));
  } else {
    fmt::print("{}", info_text(store, totals));
  }
  return {};
}

// Whether no attnc can read the file. False for files of a newer attnc or of another user.
bool is_useless(const Error& error) {
  return error.code != ErrorCode::plan_newer && error.code != ErrorCode::io;
}

// Returns the error of the first bad file that was not removed.
Status verify(const cache::FileStore& store, const Options& options) {
  ATTN_ASSIGN(const std::vector<Entry> entries, entries_of(store));
  Json bad = Json::array();
  std::size_t removed = 0;
  Status first;
  for (const Entry& entry : entries) {
    if (entry.plan.ok()) continue;
    bad.push_back(entry_json(entry));
    if (options.format == Format::text) fmt::print("{}\n", shown(entry.plan.error().message));
    if (options.remove && is_useless(entry.plan.error())) {
      store.remove(entry.file.hash);
      ++removed;
    } else if (first.ok()) {
      first = entry.plan.status();
    }
  }
  if (options.format == Format::json) {
    print_json({{"plans", entries.size()}, {"bad", bad}, {"removed", removed}});
  } else {
    fmt::print("{} of {} can be read{}\n", entries.size() - bad.size(),
               count_text(entries.size(), "plan", "plans"),
               removed == 0 ? "" : fmt::format("; {} removed", removed));
  }
  return first;
}

void print(const cache::Pruned& pruned, Format format) {
  if (format == Format::json) {
    print_json(
        {{"removed", pruned.files}, {"bytes", pruned.bytes}, {"temporaries", pruned.temporaries}});
    return;
  }
  put_summary(fmt::format("removed {} ({}) and {}\n", count_text(pruned.files, "plan", "plans"),
                          bytes_text(static_cast<std::int64_t>(pruned.bytes)),
                          count_text(pruned.temporaries, "temporary file", "temporary files")));
}

Status prune(const cache::FileStore& store, const Options& options) {
  const cache::FileLimits limits{
      options.max_bytes, std::chrono::duration_cast<std::chrono::seconds>(Days(options.max_days))};
  ATTN_ASSIGN(const cache::Pruned pruned, store.prune(limits));
  print(pruned, options.format);
  return {};
}

Status clear(const cache::FileStore& store, const Options& options) {
  ATTN_ASSIGN(const cache::Pruned pruned, store.clear());
  print(pruned, options.format);
  return {};
}

using Work = Status (*)(const cache::FileStore& store, const Options& options);

CLI::App* add_work(CLI::App& command, Action& action, const std::shared_ptr<Options>& options,
                   const std::string& name, const std::string& what, Work work) {
  CLI::App* added = command.add_subcommand(name, what);
  add_format(*added, options->format);
  set_action(*added, action, options, [work](const Options& chosen) {
    const Result<cache::FileStore> store = open_store();
    if (!store.ok()) return report(store.error(), chosen.format);
    const Status status = work(*store, chosen);
    return status.ok() ? kOk : report(status.error(), chosen.format);
  });
  return added;
}

}  // namespace
}  // namespace cache_command

void add_cache(CLI::App& app, Action& action) {
  using namespace cache_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("cache", "Show and clean the plan cache");
  command->require_subcommand(1);
  add_work(*command, action, options, "path", "Print the cache folder", path);
  add_work(*command, action, options, "list", "List the plans, most recently used first", list);
  add_work(*command, action, options, "info", "Show size and limits of the cache", info);
  add_work(*command, action, options, "verify", "Read and check every plan", verify)
      ->add_flag("--remove", options->remove, "Remove unreadable plans");
  CLI::App* pruning = add_work(*command, action, options, "prune",
                               "Remove plans beyond the age and size limits", prune);
  pruning->add_option("--max-bytes", options->max_bytes, "Maximum total size of the plans in bytes")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  pruning->add_option("--max-days", options->max_days, "Maximum days since the last use")
      ->type_name("DAYS")
      ->check(CLI::Range(0.0, 36500.0));
  add_work(*command, action, options, "clear", "Remove every plan", clear);
}

}  // namespace attn::tools
