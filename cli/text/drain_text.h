// What became of a drain, and the path master's history, as a person reads it and as JSON (docs/paths.md).
// Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/c4p.pb.h"

namespace c4::cli {

// `asked`: what the reply answers.
std::string DrainText(const v1::DrainPathsRequest& asked, const v1::DrainPathsReply& reply);
std::string DrainJson(const v1::DrainPathsRequest& asked, const v1::DrainPathsReply& reply);

std::string HistoryText(const v1::ListPathHistoryReply& reply);
std::string HistoryJson(const v1::ListPathHistoryReply& reply);

}  // namespace c4::cli
