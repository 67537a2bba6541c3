// Finds the folders of Python packages, which may contain NVIDIA's wheels.
#pragma once

#include <filesystem>
#include <vector>

namespace attn {

// Existing site-packages and dist-packages folders of the active environment: $VIRTUAL_ENV,
// $CONDA_PREFIX, and the first `python3` in $PATH, in this order, without duplicates. Starts no
// process.
std::vector<std::filesystem::path> python_sites();

}  // namespace attn
