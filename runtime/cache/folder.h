// Where plans are kept on disk when nobody says otherwise.
#pragma once

#include <string>

namespace attn::cache {

// $ATTN_CACHE_DIR, else attnc in $XDG_CACHE_HOME when that is absolute, else ~/.cache/attnc. Empty
// when none of them is set: then there is no folder, and nothing is kept on disk.
std::string default_folder();

}  // namespace attn::cache
