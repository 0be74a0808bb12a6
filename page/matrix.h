// The latency matrix as the page draws it: queue pairs put together by rank, node or NIC. Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/page.pb.h"
#include "service/status.h"

namespace c4::page {

// `by`: rank, node, nic; InvalidArgument for another. Of each cell the queue pair that is slowest for what is
// usual counts. Rows stand by the lowest rank in them.
absl::StatusOr<v1::PageMatrix> PutTogether(const v1::GetMatrixReply& reply, const std::string& by);

// The queue pairs of one cell, the slowest first.
absl::StatusOr<v1::GetMatrixReply> CellOf(const v1::GetMatrixReply& reply, const std::string& by,
                                          const std::string& from, const std::string& to);

}  // namespace c4::page
