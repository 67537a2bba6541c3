// Opens shared libraries of others at run time.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace attn {

// A search for a library. It stays loaded.
struct LibrarySearch {
  void* handle = nullptr;  // from dlopen, RTLD_GLOBAL; null until it is found
  std::string path;
  std::vector<std::string> failures;  // the linker's error for each place tried
};

// Opens a path, or a name for the dynamic linker to find; whether there is one.
bool try_open(LibrarySearch& search, const std::string& file);

// Searches folders, each either the one that has the library or an install prefix.
LibrarySearch open_in(const std::vector<std::filesystem::path>& folders, const std::string& file);

// The files that open_in() tries in a folder.
std::array<std::filesystem::path, 3> inside(const std::filesystem::path& folder,
                                            const std::string& file);

std::string path_of(void* handle);                  // of a loaded library
std::string linker_words(const std::string& file);  // why dlopen() of the file failed just now

// Adds the folder that a variable of the environment names, if it is set.
void append_environment(std::vector<std::filesystem::path>& folders, const char* variable);

}  // namespace attn
