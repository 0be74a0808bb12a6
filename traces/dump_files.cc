#include "traces/dump_files.h"

#include <algorithm>
#include <filesystem>
#include <glob.h>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "traces/byte_source.h"
#include "traces/flight_recorder.h"
#include "traces/tar_reader.h"

namespace c4::traces {
namespace {

namespace fs = std::filesystem;

class Collector {
 public:
  DumpFiles Collect(const std::vector<std::string>& words) {
    for (const std::string& word : words) Word(word);
    for (auto& [rank, dump] : by_rank_) found_.dumps.push_back(std::move(dump.first));
    return std::move(found_);
  }

 private:
  void Problem(const std::string& path, const std::string& why) {
    const bool named = why.find(path) != std::string::npos;
    found_.problems.push_back(named ? why : absl::StrCat(path, ": ", why));
  }

  void Word(const std::string& word) {
    std::error_code error;
    if (fs::is_directory(word, error)) return Folder(word);
    const bool pattern = word.find_first_of("*?[") != std::string::npos && !fs::exists(word, error);
    if (!pattern) return File(word);
    glob_t matches{};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    if (glob(word.c_str(), 0, nullptr, &matches) != 0) {
      found_.no_file = true;
      Problem(word, "no file is called so");
    }
    for (size_t i = 0; i < matches.gl_pathc; ++i) {
      const std::string match = matches.gl_pathv[i];
      fs::is_directory(match, error) ? Folder(match) : File(match);
    }
    globfree(&matches);
  }

  // Folders below too, but no links to folders: those may lead back.
  void Folder(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> files;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code unused;
      if (entry->is_regular_file(unused)) files.push_back(entry->path().string());
    }
    if (error) Problem(folder, absl::StrCat("cannot be read: ", error.message()));
    if (!error && files.empty()) {
      found_.no_file = true;
      Problem(folder, "there is no file in it");
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) File(file);
  }

  void File(const std::string& path) {
    absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenBytes(path);
    if (!source.ok()) {
      found_.no_file =
          found_.no_file || absl::IsNotFound(source.status()) || absl::IsPermissionDenied(source.status());
      return Problem(path, std::string(source.status().message()));
    }
    absl::StatusOr<std::string> head = TakeHead(source->get(), kTarBlock);
    if (!head.ok()) return Problem(path, std::string(head.status().message()));
    const bool tar = LooksLikeTar(*head);
    const std::unique_ptr<ByteSource> whole = WithHead(*std::move(head), *std::move(source));
    tar ? Archive(path, whole.get()) : Dump(path, whole.get());
  }

  void Archive(const std::string& path, ByteSource* source) {
    TarReader tar(source);
    for (;;) {
      const absl::StatusOr<std::optional<std::string>> name = tar.Next();
      if (!name.ok()) return Problem(path, std::string(name.status().message()));
      if (!*name) return;
      const std::string inside = absl::StrCat(path, ":", **name);
      absl::StatusOr<std::unique_ptr<ByteSource>> contents = Unpacked(tar.Contents());
      if (!contents.ok()) {
        Problem(inside, std::string(contents.status().message()));
        continue;
      }
      Dump(inside, contents->get());
    }
  }

  void Dump(const std::string& path, ByteSource* source) {
    absl::StatusOr<analysis::RankDump> dump = ParseFlightDump(source, path);
    if (!dump.ok()) return Problem(path, std::string(dump.status().message()));
    const int rank = dump->rank;
    const auto [same, added] = by_rank_.try_emplace(rank, *std::move(dump), path);
    if (added) return;
    found_.two_of_one_rank = true;
    Problem(path, absl::StrCat("is a second dump of rank ", rank, " beside ", same->second.second,
                               ": give those of one time only"));
  }

  DumpFiles found_;
  std::map<int, std::pair<analysis::RankDump, std::string>> by_rank_;  // with its path
};

}  // namespace

DumpFiles ReadDumpFiles(const std::vector<std::string>& words) {
  return Collector().Collect(words);
}

}  // namespace c4::traces
