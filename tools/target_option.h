// The GPUs to compile for, as the command line names them.
#pragma once

#include <string>

#include "compiler/planning/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"
#include "runtime/worker/worker.h"
#include "tools/command.h"

namespace attn::tools {

// --target NAME|FILE.json|native
void add_target_option(CLI::App& command, std::string& target);

// A built-in target's name, a file of device properties (ends in .json), or "native": the GPU at
// hand, asked through cuDNN. Errors: invalid_argument for an unknown name (the notes list those
// there are), io, cuda or cudnn for native without a GPU or cuDNN.
Result<plan::Target> find_target(const std::string& text, const std::string& cudnn_folder);

// The local GPU alone.
Result<plan::Target> native_target(const std::string& cudnn_folder);

// How long a worker may take to build a plan when nobody says otherwise, in seconds.
inline constexpr int kBuildSeconds = 300;

// --timeout SECONDS
void add_timeout(CLI::App& command, int& seconds);

// Compiling in a worker that is this program. Repro files go into the folder `repro` of the cache's
// folder, or into the current one where there is no cache.
worker::Options worker_options(const std::string& cudnn_folder, int timeout = kBuildSeconds);

// Why a plan may be refused where it is loaded, empty when nothing speaks for it: cuDNN 9.28
// compares the properties that a plan was made for with the card's, and those of some targets come
// from data sheets.
std::string doubt_of(const plan::Target& target, std::int64_t cudnn_version);

// --lowering NAME or --allow-unfused, and --without NAME[,NAME]
void add_lowering(CLI::App& command, std::string& lowering, planning::Rewrites& rewrites);

}  // namespace attn::tools
