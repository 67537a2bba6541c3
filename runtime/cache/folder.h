// The default cache folder.
#pragma once

#include <string>

namespace attn::cache {

// $ATTN_CACHE_DIR, else attnc in $XDG_CACHE_HOME if that is absolute, else ~/.cache/attnc. Empty if
// none is set: then nothing is cached on disk.
std::string default_folder();

}  // namespace attn::cache
