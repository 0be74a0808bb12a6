// The latency matrix of a job as a person reads it in a terminal, and as JSON. Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/c4d.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

enum class MatrixBy { kRank, kNic, kQueuePair };

// A heat map: rows send, columns receive; each cell the ratio of its latency to what is usual for it, slow
// ones marked with '!'. By queue pair: a list, the slowest first. Then each rank's own time.
// A heat map that is wider than the screen joins neighbours (ranks 0-7 in one row) until it fits; a cell then
// shows the worst of what it joins. "-": nothing usual has been learnt yet.
std::string MatrixText(const v1::GetMatrixReply& matrix, MatrixBy by, const Screen& screen);
std::string MatrixJson(const v1::GetMatrixReply& matrix);

}  // namespace c4::cli
