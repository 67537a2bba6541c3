// Where Python packages are installed: the vendor's wheels are among them.
#pragma once

#include <filesystem>
#include <vector>

namespace attn {

// Existing site-packages and dist-packages folders of the active environment: of $VIRTUAL_ENV,
// $CONDA_PREFIX, and the `python3` that is first in $PATH. Each once, in this order. Starts no
// process.
std::vector<std::filesystem::path> python_sites();

}  // namespace attn
