// A program that compiles whatever its arguments, and so is not a compile worker, although its
// options name it as one. Works in the current folder: writes a line to "starts" for each process
// that began, and to "words" the error that the last one to exit received.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "runtime/worker/worker.h"

namespace {

constexpr std::uintmax_t kMostStarts = 5;  // in case the processes do not exit

}  // namespace

int main() {
  std::ofstream("starts", std::ios::app) << "one\n";
  if (std::filesystem::file_size("starts") > kMostStarts * std::string("one\n").size()) return 9;
  attn::worker::Options options;
  options.timeout = std::chrono::seconds(20);
  const auto version = attn::worker::cudnn_version(options);
  if (version.ok()) return 0;
  std::ofstream("words") << version.error().to_text();
  std::cerr << version.error().to_text() << std::endl;
  return 3;
}
