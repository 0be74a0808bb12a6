#include "cli/text/screen.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

constexpr int kUsualColumns = 80;  // of a terminal that does not say
constexpr int kUsualRows = 24;
constexpr int kLeastColumns = 20;  // below it nothing can be read anyway; longer lines wrap

bool StartsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

// Bytes of the first `columns` characters.
size_t BytesOf(std::string_view text, size_t columns) {
  size_t bytes = 0;
  for (; bytes < text.size(); ++bytes) {
    if (!StartsCharacter(text[bytes])) continue;
    if (columns == 0) break;
    --columns;
  }
  return bytes;
}

}  // namespace

Screen MakeScreen(const ScreenFacts& facts) {
  Screen screen;
  if (!facts.terminal) return screen;
  screen.terminal = true;
  screen.columns = facts.columns > 0 ? std::max(facts.columns, kLeastColumns) : kUsualColumns;
  screen.rows = facts.rows > 0 ? facts.rows : kUsualRows;
  const bool refused = facts.no_color != nullptr && *facts.no_color != '\0';
  const bool able = facts.term != nullptr && *facts.term != '\0' && strcmp(facts.term, "dumb") != 0;
  screen.colour = able && !refused;
  return screen;
}

Screen ScreenOf(FILE* stream) {
  ScreenFacts facts;
  const int descriptor = fileno(stream);
  facts.terminal = isatty(descriptor) == 1;
  winsize size = {};
  if (facts.terminal && ioctl(descriptor, TIOCGWINSZ, &size) == 0) {
    facts.columns = size.ws_col;
    facts.rows = size.ws_row;
  }
  facts.no_color = getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  facts.term = getenv("TERM");          // NOLINT(concurrency-mt-unsafe): the same
  return MakeScreen(facts);
}

std::string Painted(const Screen& screen, Colour colour, std::string_view text) {
  if (!screen.colour || text.empty()) return std::string(text);
  const char* code = "1";
  switch (colour) {
    case Colour::kRed:
      code = "1;31";
      break;
    case Colour::kYellow:
      code = "33";
      break;
    case Colour::kGreen:
      code = "32";
      break;
    case Colour::kDim:
      code = "2";
      break;
    case Colour::kBold:
      break;
  }
  return Cat("\033[", code, "m", text, "\033[0m");
}

size_t TextColumns(std::string_view text) {
  size_t columns = 0;
  for (const char byte : text) columns += StartsCharacter(byte) ? 1 : 0;
  return columns;
}

std::string Fit(std::string_view line, int columns) {
  if (columns <= 0 || TextColumns(line) <= static_cast<size_t>(columns)) return std::string(line);
  constexpr std::string_view kMore = "...";
  const size_t room = static_cast<size_t>(columns) - kMore.size();
  std::string_view kept = line.substr(0, BytesOf(line, room));
  // A blank right behind what is kept ends a word, too.
  const size_t blank = line.substr(0, kept.size() + 1).find_last_of(' ');
  if (blank != std::string_view::npos && blank > kept.size() / 2) kept = kept.substr(0, blank);
  return Cat(kept, kMore);
}

std::string Wrapped(std::string_view text, size_t width, size_t indent) {
  std::string wrapped;
  size_t used = 0;
  for (const std::string& word : Words(text, " ")) {
    const size_t columns = TextColumns(word);
    if (used != 0 && used + 1 + columns > width) {
      CatTo(&wrapped, "\n", std::string(indent, ' '));
      used = 0;
    }
    CatTo(&wrapped, used == 0 ? "" : " ", word);
    used += (used == 0 ? 0 : 1) + columns;
  }
  return wrapped;
}

std::string Repainted(const Screen& screen, std::string_view text) {
  if (!screen.terminal) return Cat(text, "\n");
  std::string shown = "\033[H";
  const int room = std::max(screen.rows - 1, 2);  // the cursor stands on the last one
  int line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    if (line_number == room && !text.empty()) {
      const auto left = 1 + std::count(text.begin(), text.end(), '\n');
      CatTo(&shown, "and ", left, " more lines\033[K\n");
      break;
    }
    shown.append(line).append("\033[K\n");
  }
  return shown + "\033[J";
}

}  // namespace c4::cli
