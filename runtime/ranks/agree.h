// What ranks agree on before they work together.
#pragma once

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/ranks/transport.h"

namespace attn::ranks {

// Collective: tells all ranks the hash of this rank's file, and how its preparations ended. Ok if
// those of all ranks went well and all have the same file. Errors: `own`; else that of the lowest
// rank that failed, by its code and with its number; mismatch, if files differ; those of
// Transport::all_gather(), after which the transport can only be aborted.
Status agree(Transport& transport, std::string_view family_hash, const Status& own,
             int timeout_seconds);

}  // namespace attn::ranks
