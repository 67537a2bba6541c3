/* The operator attn::forward of exported PyTorch programs, for C++ programs without Python. */
#pragma once

#include <string>

namespace attn {

/* Loads the plans that attn.torch.save_plans wrote into a folder, for a CUDA device of this
 * process. Plans are code: load only what you trust. Throws std::runtime_error if a file cannot be
 * read, is damaged, or is for another GPU. Not while operators run. */
void load_plans(const std::string& folder, int device = 0);

}  // namespace attn
