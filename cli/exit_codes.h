// Exit codes of the `c4` command (docs/exit-codes.md). `c4 run` hands on the code of the rank that failed, so
// its own failures keep to the numbers that shells, timeout(1) and srun use.
#pragma once

namespace c4::cli {

inline constexpr int kExitOk = 0;

// c4 verdicts
inline constexpr int kExitSuspected = 1;    // an open verdict is suspected, none is confirmed
inline constexpr int kExitConfirmed = 2;    // an open verdict is confirmed
inline constexpr int kExitUnreachable = 3;  // no master answered; also c4 status

// c4 demo, c4 doctor (there are problems), c4 env, c4 fabric, c4 incident (no such verdict), c4 inject, c4
// install, c4 smon, c4 stacks (no such rank)
inline constexpr int kExitFailed = 1;
inline constexpr int kExitNoRights = 77;  // c4 fabric, c4 inject: this user may not make namespaces

// c4 whatif
inline constexpr int kExitStraggling = 1;    // slower than --fail-above allows
inline constexpr int kExitDoubtful = 2;      // --strict, and something was left out or the replay is far off
inline constexpr int kExitBatchRefused = 3;  // --batch: some traces are refused, the others analysed
inline constexpr int kExitBatchFailed = 4;   // --batch: some crashed, or ran out of time or memory
inline constexpr int kExitBadData = 65;      // the input is refused; also c4 hang, iterations
inline constexpr int kExitNoInput = 66;      // a file cannot be opened or written; also they
inline constexpr int kExitNoMemory = 71;     // the input needs more memory than there is

// c4 validate
inline constexpr int kExitSlowPart = 1;   // a device or link is slow, or errs
inline constexpr int kExitNotTested = 2;  // nothing is, but not all could be tested

// c4 hang
inline constexpr int kExitHung = 1;  // somebody holds the job up, or a group is stuck

inline constexpr int kExitUsage = 64;         // the command line is wrong
inline constexpr int kExitTimeout = 124;      // c4 run --timeout
inline constexpr int kExitLauncher = 125;     // c4 run could not do its own part
inline constexpr int kExitNotRunnable = 126;  // the program is there and cannot be executed
inline constexpr int kExitNotFound = 127;     // there is no such program
inline constexpr int kExitSignalBase = 128;   // + the signal that ended the rank or the launcher

}  // namespace c4::cli
