#include "cli/install/installation.h"

#include <nlohmann/json.hpp>

#include "cli/base/plain_file.h"
#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/install/elf_image.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRecordFormat = 1;
constexpr size_t kMostRecordBytes = 65536;

// The last resort of all refusals: what is ours can be taken away by hand.
std::string RemoveByHand(const InstallFolder& folder) {
  std::string names;
  if (folder.original.has_value()) CatTo(&names, " ", folder.OriginalPath());
  if (folder.record.has_value()) CatTo(&names, " ", folder.RecordPath());
  return Cat("rm", names);
}

StatusOr<Standing> JudgeVendorLibrary(const InstallFolder& folder) {
  if (!folder.record.has_value()) {
    if (!folder.original.has_value()) return Standing::kUntouched;
    return FailedPreconditionError(Cat(folder.OriginalPath(), " lies there and no record says that ",
                                       CommandFor("install"), " put it there: ", "move it away, then run ",
                                       CommandFor("install"), " again"));
  }
  const KeptFile& kept = folder.record->original;
  if (folder.library->IsSameAs(kept) && (!folder.original.has_value() || folder.original->IsSameAs(kept))) {
    return Standing::kBegun;
  }
  return FailedPreconditionError(
      Cat(folder.LibraryPath(), " is neither C4's nor the NCCL ", folder.record->original_version, " that ",
          CommandFor("install"),
          " replaced: somebody has upgraded it since. Remove what is left of the old one (",
          RemoveByHand(folder), "), then run ", CommandFor("install"), " again"));
}

StatusOr<Standing> JudgeOurLibrary(const InstallFolder& folder) {
  if (!folder.record.has_value() && !folder.original.has_value()) {
    return FailedPreconditionError(
        Cat(folder.LibraryPath(), " is C4's already, and no original lies beside it: ", CommandFor("install"),
            " did not put it there, so "
            "there is nothing to update or to restore"));
  }
  if (!folder.record.has_value()) {
    return FailedPreconditionError(
        Cat(folder.RecordPath(), " is gone, and with it what the original was. If ", folder.OriginalPath(),
            " is the original, put it back by hand: mv ", folder.OriginalPath(), " ", folder.LibraryPath()));
  }
  const std::string reinstall =
      Cat("Reinstall NCCL ", folder.record->original_version, " (pip install --force-reinstall), ",
          RemoveByHand(folder), ", then run ", CommandFor("install"), " again");
  if (!folder.original.has_value()) {
    return FailedPreconditionError(Cat("the original, ", folder.OriginalPath(), ", is gone. ", reinstall));
  }
  const KeptFile& kept = folder.record->original;
  if (folder.original->IsSameAs(kept)) return Standing::kInstalled;
  if (folder.original->is_link && folder.original->sha256.empty()) {
    return FailedPreconditionError(Cat("the original, ", folder.OriginalPath(), ", leads to ",
                                       folder.original->link_target, ", which is gone. ", reinstall));
  }
  return FailedPreconditionError(Cat(folder.OriginalPath(), " is not the NCCL ",
                                     folder.record->original_version, " that ", CommandFor("install"),
                                     " kept there. ", reinstall));
}

}  // namespace

std::string RecordText(const InstallRecord& record) {
  const KeptFile& original = record.original;
  Json file = {{"kind", original.is_link ? "link" : "file"}};
  if (original.is_link) file["target"] = original.link_target;
  file["sha256"] = original.sha256;
  file["size_bytes"] = original.size_bytes;
  file["mode"] = original.mode;
  file["modified_ns"] = original.modified_ns;
  file["nccl"] = record.original_version;
  const Json document = {{"format", kRecordFormat},
                         {"what", "left by `c4 install`, which needs it for `c4 install --undo`"},
                         {"original", file},
                         {"installed", {{"sha256", record.our_sha256}, {"c4", record.our_version}}}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

StatusOr<InstallRecord> ParseRecord(const std::string& text) {
  try {
    const Json document = Json::parse(text);
    const int format = document.at("format").get<int>();
    if (format != kRecordFormat) {
      return FailedPreconditionError(Cat("is of format ", format, ", this ", ProgramName(), " knows ",
                                         kRecordFormat, ": use a newer one"));
    }
    const Json& file = document.at("original");
    InstallRecord record;
    record.original.is_link = file.at("kind").get<std::string>() == "link";
    if (record.original.is_link) record.original.link_target = file.at("target").get<std::string>();
    record.original.sha256 = file.at("sha256").get<std::string>();
    record.original.size_bytes = file.at("size_bytes").get<uint64_t>();
    record.original.mode = file.at("mode").get<unsigned>();
    record.original.modified_ns = file.at("modified_ns").get<int64_t>();
    record.original_version = file.at("nccl").get<std::string>();
    record.our_sha256 = document.at("installed").at("sha256").get<std::string>();
    record.our_version = document.at("installed").at("c4").get<std::string>();
    return record;
  } catch (const Json::exception& error) {
    return FailedPreconditionError(
        Cat("is not what ", CommandFor("install"), " wrote (", error.what(), "): remove it, or restore it"));
  }
}

StatusOr<InstallFolder> LookAtFolder(const std::string& path) {
  InstallFolder folder;
  folder.path = path;
  const auto look = [](const std::string& file, std::optional<KeptFile>* kept) {
    StatusOr<std::optional<KeptFile>> seen = LookAtFile(file);
    if (!seen.ok()) return seen.status();
    *kept = *std::move(seen);
    return Status();
  };
  C4_RETURN_ON_FAILURE(look(folder.LibraryPath(), &folder.library));
  C4_RETURN_ON_FAILURE(look(folder.OriginalPath(), &folder.original));
  if (folder.library.has_value()) {
    folder.library_is_ours = ElfImage::Read(folder.LibraryPath()).Exports(kOurMark);
  }
  const StatusOr<std::string> text = ReadSmallFile(folder.RecordPath(), kMostRecordBytes, Links::kRefuse);
  if (IsNotFound(text.status())) return folder;
  if (!text.ok()) return text.status();
  StatusOr<InstallRecord> record = ParseRecord(*text);
  if (!record.ok()) {
    return FailedPreconditionError(Cat(folder.RecordPath(), " ", record.status().message()));
  }
  folder.record = *std::move(record);
  return folder;
}

StatusOr<Standing> Judge(const InstallFolder& folder) {
  if (!folder.library.has_value()) {
    if (!folder.record.has_value() && !folder.original.has_value()) {
      return NotFoundError(
          Cat(folder.path, " has no ", kLibraryName,
              ": name the folder of the NCCL that the job loads, or give --pip for Python's"));
    }
    return FailedPreconditionError(Cat(folder.LibraryPath(),
                                       " is gone: somebody has removed the package since ",
                                       CommandFor("install"), ". ", "What is left: ", RemoveByHand(folder)));
  }
  return folder.library_is_ours ? JudgeOurLibrary(folder) : JudgeVendorLibrary(folder);
}

}  // namespace c4::cli
