// The path master's view as a person reads it in a terminal, and as JSON (docs/paths.md). Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/c4p.pb.h"

namespace c4::cli {

// The allocation table: a line for each queue pair; then the load of the links as LinkPicture.
std::string PathsText(const v1::ListPathsReply& paths);
std::string PathsJson(const v1::ListPathsReply& paths);

// A table of leaves and spines: each cell the load upwards and downwards in % of the link, with a bar; links
// that are down, or held back, say so.
std::string LinkPicture(const google::protobuf::RepeatedPtrField<v1::LinkLoad>& links);

std::string TopologyText(const v1::GetTopologyReply& topology);
std::string TopologyReplyJson(const v1::GetTopologyReply& topology);

std::string ExplainText(const v1::ExplainReply& reply);
std::string ExplainJson(const v1::ExplainReply& reply);

}  // namespace c4::cli
