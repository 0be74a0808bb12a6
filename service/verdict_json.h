// Writes verdicts and status for people and programs: as JSON (docs/verdicts.md says what each field means),
// as one line, as a few lines. Also gives the words for the enums. The master's HTTP pages and the command
// line both use it, so they never differ. Pure functions; any thread; no errors: an unknown number becomes
// "unknown", and text that is not UTF-8 is made so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace c4::v1 {
class GetStatusReply;
class ListVerdictsReply;
class Verdict;
}  // namespace c4::v1

namespace c4::service {

// `indent`: spaces a level; -1: all on one line.
std::string VerdictJson(const v1::Verdict& verdict, int indent = -1);
// {"job","master_epoch","verdicts":[…]}
std::string VerdictListJson(const v1::ListVerdictsReply& reply, int indent = -1);
// {"job","master_epoch","agents":[…],"ranks":[…]}
std::string StatusJson(const v1::GetStatusReply& reply, int indent = -1);

// "CONFIRMED non-communication hang: rank 2 (pid 4711 on host7) is stopped".
std::string VerdictHead(const v1::Verdict& verdict);
// "ranks 0, 1, 3 wait in operation 410"; empty when nobody waits.
std::string WaitingText(const v1::Verdict& verdict);
// "CONFIRMED non-communication hang: rank 2 (pid 4711 on host7) is stopped; ranks 0, 1, 3 wait in
// operation 410 since 2.3 s". `now_unix_ns`: of the reader.
std::string VerdictLine(const v1::Verdict& verdict, int64_t now_unix_ns);
// That line, the evidence, and what to do; several lines, each ended.
std::string VerdictText(const v1::Verdict& verdict, int64_t now_unix_ns);

// The numbers are those of the enums in proto/c4/v1.
std::string_view SyndromeWord(int syndrome);           // "non-communication hang"
std::string_view FailSlowCauseWord(int cause);         // "computation"
std::string_view VerdictStateWord(int state);          // "confirmed"
std::string_view CulpritKindWord(int kind);            // "rank"
std::string_view ProcessStateWord(int process_state);  // "stopped"
std::string_view FunctionWord(int function);           // "all_reduce"
// NCCL's own numbers.
std::string_view DataTypeWord(uint32_t data_type);   // "float32"
std::string_view ReductionWord(uint32_t reduction);  // "sum"

// "rank 2", "ranks 0, 1, 3", "ranks 0-7, 9"; long lists end in "and 12 more". `ranks` ascends.
std::string RankListText(std::span<const uint32_t> ranks);
std::string SecondsText(int64_t duration_ns);            // "2.3 s"
std::string CommunicatorText(uint64_t communicator_id);  // "0x" and 16 hexadecimal digits

}  // namespace c4::service
