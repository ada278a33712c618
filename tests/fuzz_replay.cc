// Runs a fuzz target over the files of a corpus folder: what a fuzzer once found stays found, under every
// compiler. Usage: X_fuzz CORPUS_FOLDER. Fails when the folder holds no file, so that a lost corpus cannot
// pass.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Returns false when the file cannot be read whole.
bool read_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  bytes.clear();
  std::uint8_t chunk[4096];
  std::size_t count = 0;
  while ((count = std::fread(chunk, 1, sizeof chunk, file)) > 0)
    bytes.insert(bytes.end(), chunk, chunk + count);
  const bool whole = std::ferror(file) == 0;
  return std::fclose(file) == 0 && whole;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(argv[1], failure), end; !failure && entry != end;
       entry.increment(failure))
    if (entry->is_regular_file()) paths.push_back(entry->path());
  if (failure || paths.empty()) {
    std::fprintf(stderr, "fuzz corpus %s: no files (%s); at least one input is needed\n", argv[1],
                 failure ? failure.message().c_str() : "the folder is empty");
    return 1;
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::uint8_t> bytes;
  for (const auto& path : paths) {
    if (!read_file(path, bytes)) {
      std::fprintf(stderr, "fuzz corpus: %s cannot be read\n", path.c_str());
      return 1;
    }
    // A crash names its input: flushed before the target runs.
    std::printf("%s (%zu bytes)\n", path.filename().c_str(), bytes.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu inputs replayed\n", paths.size());
  return 0;
}
