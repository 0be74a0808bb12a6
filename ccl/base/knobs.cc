#include "ccl/base/knobs.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <strings.h>

#include "ccl/base/fork.h"
#include "ccl/base/log.h"

namespace c4 {
namespace {

struct Entry {
  const char* name;
  const char* default_value;
  const char* range;
};

constexpr Entry kTable[] = {
#define C4_KNOB(name, type, default_value, range, help) {#name, default_value, range},
#include "ccl/include/c4/knobs.inc"
#undef C4_KNOB
};

constexpr size_t kCount = sizeof kTable / sizeof kTable[0];
std::atomic<bool> warned[kCount];

struct Values {
  uint64_t forks = 0;
  uint64_t forgotten = 0;
  const Values* before = nullptr;
  std::string text[kCount];  // empty: not set
};
// Replaced in children of forks and by tests only, and never freed: somebody may be reading it.
std::atomic<const Values*> values{nullptr};
std::atomic<uint64_t> forgotten{0};  // how often ForgetKnobs was called

const Entry& At(Knob knob) {
  return kTable[static_cast<size_t>(knob)];
}

const Values& Read() {
  const Values* current = values.load(std::memory_order_acquire);
  const auto is_good = [](const Values* read) {
    return read != nullptr && read->forks == Forks() && read->forgotten == forgotten.load();
  };
  if (is_good(current)) return *current;
  auto* const made = new Values;
  made->forks = Forks();
  made->forgotten = forgotten.load();
  made->before = current;
  for (size_t i = 0; i < kCount; ++i) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): once, on the thread of the program's first call
    const char* const value = getenv(kTable[i].name);
    if (value != nullptr) made->text[i] = value;
  }
  if (values.compare_exchange_strong(current, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *current;
}

const char* Environment(Knob knob) {
  const std::string& value = Read().text[static_cast<size_t>(knob)];
  return value.empty() ? nullptr : value.c_str();
}

void WarnOnce(Knob knob, const char* value) {
  if (warned[static_cast<size_t>(knob)].exchange(true)) return;
  const Entry& entry = At(knob);
  C4_WARN("%s=%s is not in %s: taking %s instead", entry.name, value, entry.range, entry.default_value);
}

}  // namespace

bool ParseNumber(std::string_view value, std::string_view range, int64_t* number) {
  const std::string text(value);
  char* end = nullptr;
  errno = 0;
  const long long parsed = strtoll(text.c_str(), &end, 10);
  if (errno != 0 || end == text.c_str() || *end != '\0') return false;
  const size_t dots = range.find("..");
  if (dots != std::string_view::npos) {
    const std::string limits(range);
    if (parsed < strtoll(limits.c_str(), nullptr, 10)) return false;
    if (parsed > strtoll(limits.c_str() + dots + 2, nullptr, 10)) return false;
  }
  *number = parsed;
  return true;
}

bool ParseChoice(std::string_view value, std::string_view range, std::string* choice) {
  while (!range.empty()) {
    const size_t bar = range.find('|');
    const std::string_view word = range.substr(0, bar);
    if (word.size() == value.size() && strncasecmp(word.data(), value.data(), word.size()) == 0) {
      *choice = word;
      return true;
    }
    range = bar == std::string_view::npos ? std::string_view() : range.substr(bar + 1);
  }
  return false;
}

int64_t KnobNumber(Knob knob) {
  int64_t number = 0;
  if (const char* value = Environment(knob)) {
    if (ParseNumber(value, At(knob).range, &number)) return number;
    WarnOnce(knob, value);
  }
  (void)ParseNumber(At(knob).default_value, "", &number);
  return number;
}

std::string KnobText(Knob knob) {
  const char* value = Environment(knob);
  const Entry& entry = At(knob);
  if (value == nullptr) return entry.default_value;
  if (*entry.range == '\0') return value;
  std::string choice;
  if (ParseChoice(value, entry.range, &choice)) return choice;
  // The log's own level cannot warn about itself: it is being read right now.
  if (knob != Knob::NCCL_DEBUG) WarnOnce(knob, value);
  return entry.default_value;
}

bool KnobIsSet(Knob knob) {
  return Environment(knob) != nullptr;
}

uint16_t KnobChoiceNumber(Knob knob) {
  const std::string chosen = KnobText(knob);
  uint16_t number = 0;
  while (KnobChoiceText(knob, number) != chosen && KnobChoiceText(knob, number) != "?") ++number;
  return number;
}

std::string KnobChoiceText(Knob knob, uint16_t number) {
  std::string_view range = At(knob).range;
  for (; number > 0 && !range.empty(); --number) {
    const size_t bar = range.find('|');
    range = bar == std::string_view::npos ? std::string_view() : range.substr(bar + 1);
  }
  return range.empty() ? "?" : std::string(range.substr(0, range.find('|')));
}

const char* KnobName(Knob knob) {
  return At(knob).name;
}

void ForgetKnobs() {
  ++forgotten;
}

}  // namespace c4
