// Options that select the target GPU and how to compile for it.
#pragma once

#include <string>
#include <vector>

#include "compiler/target/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"
#include "runtime/worker/worker.h"
#include "tools/command.h"

namespace attn::tools {

// Default target when no GPU is found.
inline constexpr const char* kDefaultTarget = "h200";

// --target NAME|FILE.json|native
void add_target_option(CLI::App& command, std::string& target);

// --target NAME[,NAME]|FILE.json|native
void add_targets_option(CLI::App& command, std::string& targets);

// `more`, then the names and aliases of targets.
std::vector<std::string> target_words(std::vector<std::string> more);

// Finds a target by built-in name, by a file of device properties (ends in .json), or "native": the
// local GPU, queried through cuDNN. Errors: invalid_argument for an unknown name (the notes list
// the names, and one that may be meant); io; those of native_target.
Result<plan::Target> find_target(const std::string& text, const std::string& cudnn_folder);

// The local GPU as a target. Without cuDNN, the built-in target of its compute capability, if
// attnc's own kernels run on it. Errors: cuda without a GPU; cudnn.
Result<plan::Target> native_target(const std::string& cudnn_folder);

// The error of a command that needs a GPU: says what it needs, and why native_target failed.
Error needs_device(std::string_view command, const Error& why);

// What one build may take: by default what worker::Options allow.
struct BuildLimits {
  int seconds = 300;
  int mebibytes = 4096;  // of a worker
};

// --timeout SECONDS and --memory-limit MIB
void add_build_limits(CLI::App& command, BuildLimits& limits);

// Options for compiling in a worker process. Repro files are written to the folder `repro` in the
// cache folder, or to the current folder if there is no cache.
worker::Options worker_options(const std::string& cudnn_folder, const BuildLimits& limits = {});

// A note if cuDNN may refuse to load a plan for the target, "" otherwise: cuDNN 9.28 compares the
// properties that a plan was made for with the GPU's, and those of some targets come from data
// sheets.
std::string doubt_of(const plan::Target& target, std::int64_t cudnn_version);

// --engine NAME, --strategy NAME or --allow-unfused, --without NAME[,NAME] and
// --skeleton NAME. `strategy` becomes
// what planner::strategies() takes.
void add_strategy(CLI::App& command, std::string& strategy, target::Rewrites& rewrites);

}  // namespace attn::tools
