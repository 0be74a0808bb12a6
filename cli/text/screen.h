// Where a verb's text goes: how wide and high it is, whether it takes colours, and how text is made to fit.
//
// A file or a pipe has no width and takes no colours, so that what a script reads never depends on a
// terminal. Pure but for ScreenOf; any thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace c4::cli {

struct Screen {
  int columns = 0;  // 0: no limit
  int rows = 0;     // 0: no limit
  bool colour = false;
  bool terminal = false;
};

// What is known of a descriptor and the environment, apart from asking for it.
struct ScreenFacts {
  bool terminal = false;
  int columns = 0;  // as the terminal says; 0: it does not
  int rows = 0;
  const char* no_color = nullptr;  // NO_COLOR: set and not empty, no colours (https://no-color.org)
  const char* term = nullptr;      // TERM: "dumb" or unset, no colours
};
Screen MakeScreen(const ScreenFacts& facts);
// Of an open stream, as it is now: a window may have been resized since.
Screen ScreenOf(FILE* stream);

enum class Colour { kRed, kYellow, kGreen, kDim, kBold };
// `text` in that colour where the screen takes colours, else as it is.
std::string Painted(const Screen& screen, Colour colour, std::string_view text);

// Characters of UTF-8 text, each one column wide. Escapes of colours count as well: fit first, then paint.
size_t TextColumns(std::string_view text);
// The line cut at `columns` (0: as it is), between words where one ends in its second half, with "..." at its
// end.
std::string Fit(std::string_view line, int columns);

// `text` in lines of at most `width` columns, cut at blanks, each after the first behind `indent` blanks.
std::string Wrapped(std::string_view text, size_t width, size_t indent);

// Shows `text` in the place of what was shown before: each line is overwritten and what is left of the old
// one erased, so that nothing flickers. Lines below the screen's last one are left out, and said. On what is
// no terminal just the text, with an empty line after it.
std::string Repainted(const Screen& screen, std::string_view text);

}  // namespace c4::cli
