#include "traces/kineto_events.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

// So that base, start and duration can be added without looking.
constexpr int64_t kMost_ns = int64_t{3} * 1000 * 1000 * 1000 * 1000 * 1000 * 1000;
constexpr int kMostRanks = 1 << 24;

bool OfTime(char c) {
  return c == '-' || c == '.' || (c >= '0' && c <= '9');
}

// Microseconds become nanoseconds; digits behind the third after the point are rounded.
std::optional<int64_t> Nanoseconds(std::string_view text) {
  bool plain = !text.empty();
  for (const char c : text) plain = plain && OfTime(c);
  const size_t point = text.find('.');
  const std::string_view fraction = point == std::string_view::npos ? "" : text.substr(point + 1);
  if (plain) {
    int64_t whole = 0;
    const std::string_view front = text.substr(0, point);
    const auto [end, error] = std::from_chars(front.data(), front.data() + front.size(), whole);
    if (error != std::errc() || end != front.data() + front.size()) return std::nullopt;
    int64_t rest = 0;
    for (size_t i = 0; i < 3; ++i) {
      const char digit = i < fraction.size() ? fraction[i] : '0';
      if (digit < '0' || digit > '9') return std::nullopt;
      rest = rest * 10 + (digit - '0');
    }
    for (const char digit : fraction) {
      if (digit < '0' || digit > '9') return std::nullopt;
    }
    if (fraction.size() > 3 && fraction[3] >= '5') ++rest;
    if (std::abs(whole) > kMost_ns / 1000 - 1) return std::nullopt;
    return whole * 1000 + (text.front() == '-' ? -rest : rest);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(std::abs(value) * 1000 < static_cast<double>(kMost_ns))) return std::nullopt;
  return std::llround(value * 1000);
}

}  // namespace

std::string KinetoTime::Complaint(const char* name) const {
  if (text.empty()) return absl::StrCat("it has no ", name);
  constexpr size_t kShown = 40;
  return absl::StrCat("its ", name, " is '", text.substr(0, kShown), "', not a number of microseconds");
}

const std::string* KinetoEvent::Arg(const std::string& key) const {
  for (size_t i = 0; i < args_used; ++i) {
    if (args[i].first == key) return &args[i].second;
  }
  return nullptr;
}

absl::StatusOr<bool> KinetoEvents::Next(KinetoEvent* event) {
  bool read = place_ != Place::kBefore || Begin();
  if (read && place_ == Place::kEvents) {
    bool more = false;
    read = json_.More(']', next_ == 0, &more);
    if (read && more && Event(event)) return true;
    if (read && more) read = false;
    if (read) {
      place_ = Place::kOver;
      read = bare_ || Header(false);
      if (read && place_ == Place::kOver) read = json_.End();
    }
  }
  if (!read) {
    const absl::Status& status = json_.status();
    if (!absl::IsInvalidArgument(status) || place_ != Place::kEvents) return status;
    return absl::InvalidArgumentError(absl::StrCat("event ", next_, ", ", status.message()));
  }
  header_.missing_values = json_.missing();
  if (!seen_events_) {
    return absl::InvalidArgumentError("it has no traceEvents: this is no profile of PyTorch's profiler");
  }
  return false;
}

bool KinetoEvents::Begin() {
  constexpr char kBom[] = "\xef\xbb\xbf";
  for (const char byte : {kBom[0], kBom[1], kBom[2]}) {
    if (json_.Peek() != byte) break;
    if (!json_.Expect(byte, "a byte order mark")) return false;
  }
  bare_ = json_.Peek() == '[';
  if (!bare_) return json_.Expect('{', "a '{' or a '['") && Header(true) && (seen_events_ || json_.End());
  place_ = Place::kEvents;
  seen_events_ = true;
  return json_.Expect('[', "a '['");
}

// Up to the events, or to the end.
bool KinetoEvents::Header(bool first) {
  for (;; first = false) {
    bool more = false;
    if (!json_.More('}', first, &more)) return false;
    if (!more) {
      place_ = Place::kOver;
      return true;
    }
    if (!json_.Key(&key_)) return false;
    if (json_.Missing()) continue;
    if (key_ == "traceEvents") {
      if (seen_events_) return json_.Fail("there is a second traceEvents: remove one");
      seen_events_ = true;
      place_ = Place::kEvents;
      return json_.Expect('[', "the '[' of traceEvents");
    }
    if (!HeaderValue()) return false;
  }
}

bool KinetoEvents::HeaderValue() {
  if (key_ == "distributedInfo" && json_.Peek() == '{') return Distributed();
  if (key_ != "baseTimeNanoseconds") return json_.Skip();
  std::optional<int64_t> base;
  if (!WholeNumber("baseTimeNanoseconds", kMost_ns, &base)) return false;
  header_.base_ns = base.value_or(0);
  return true;
}

bool KinetoEvents::Distributed() {
  if (!json_.Expect('{', "a '{'")) return false;
  for (bool first = true;; first = false) {
    bool more = false;
    if (!json_.More('}', first, &more)) return false;
    if (!more) return true;
    if (!json_.Key(&key_)) return false;
    if (json_.Missing()) continue;
    if (key_ == "rank" || key_ == "world_size") {
      const bool is_rank = key_ == "rank";
      std::optional<int64_t> number;
      if (!WholeNumber(is_rank ? "rank" : "world_size", kMostRanks, &number)) return false;
      (is_rank ? header_.rank : header_.world_size) = static_cast<int>(number.value_or(0));
    } else if (key_ == "pg_config" && json_.Peek() == '[') {
      if (!Groups()) return false;
    } else if (!json_.Skip()) {
      return false;
    }
  }
}

bool KinetoEvents::Groups() {
  constexpr size_t kMostGroups = 100000;
  if (!json_.Expect('[', "a '['")) return false;
  for (bool first = true;; first = false) {
    bool more = false;
    if (!json_.More(']', first, &more)) return false;
    if (!more) return true;
    if (json_.Peek() != '{') {
      if (!json_.Skip()) return false;
      continue;
    }
    if (!json_.Expect('{', "a '{'")) return false;
    std::string name;
    std::optional<int64_t> size;
    for (bool first_key = true;; first_key = false) {
      if (!json_.More('}', first_key, &more)) return false;
      if (!more) break;
      if (!json_.Key(&key_)) return false;
      if (json_.Missing()) continue;
      bool quoted = false;
      const bool read = key_ == "pg_desc" && json_.Peek() == '"' ? json_.Scalar(&name, &quoted)
                        : key_ == "pg_size"                      ? WholeNumber("pg_size", kMostRanks, &size)
                                                                 : json_.Skip();
      if (!read) return false;
    }
    if (size && header_.groups.size() < kMostGroups)
      header_.groups.emplace_back(name, static_cast<int>(*size));
  }
}

bool KinetoEvents::WholeNumber(const char* name, int64_t most, std::optional<int64_t>* number) {
  bool quoted = false;
  if (!json_.Scalar(&text_, &quoted)) return false;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc() || end != text_.data() + text_.size() || value < 0 || value > most) {
    return json_.Fail(absl::StrCat(name, " is not a whole number from 0 to ", most));
  }
  *number = value;
  return true;
}

bool KinetoEvents::Event(KinetoEvent* event) {
  event->number = next_;
  for (std::string* text : {&event->phase, &event->name, &event->category, &event->pid, &event->tid,
                            &event->start.text, &event->duration.text}) {
    text->clear();
  }
  event->start.ns.reset();
  event->duration.ns.reset();
  event->args_used = 0;
  if (!json_.Expect('{', "the '{' of an event")) return false;
  for (bool first = true;; first = false) {
    bool more = false;
    if (!json_.More('}', first, &more)) return false;
    if (!more) break;
    if (!json_.Key(&key_)) return false;
    if (json_.Missing()) continue;
    std::string* text = key_ == "ph"     ? &event->phase
                        : key_ == "name" ? &event->name
                        : key_ == "cat"  ? &event->category
                        : key_ == "pid"  ? &event->pid
                        : key_ == "tid"  ? &event->tid
                                         : nullptr;
    const char next = json_.Peek();
    const bool scalar = next != '{' && next != '[';
    bool read = true;
    if (text != nullptr && scalar) {
      bool quoted = false;
      read = json_.Scalar(text, &quoted);
    } else if (key_ == "ts" && scalar) {
      read = Time(&event->start);
    } else if (key_ == "dur" && scalar) {
      read = Time(&event->duration);
    } else if (key_ == "args" && next == '{') {
      read = Args(event);
    } else {
      read = json_.Skip();
    }
    if (!read) return false;
  }
  ++next_;
  return true;
}

bool KinetoEvents::Args(KinetoEvent* event) {
  if (args_.empty()) return json_.Skip();
  if (!json_.Expect('{', "a '{'")) return false;
  for (bool first = true;; first = false) {
    bool more = false;
    if (!json_.More('}', first, &more)) return false;
    if (!more) return true;
    if (!json_.Key(&key_)) return false;
    if (json_.Missing()) continue;
    const char next = json_.Peek();
    if (next == '{' || next == '[' || !args_.contains(key_)) {
      if (!json_.Skip()) return false;
      continue;
    }
    bool quoted = false;
    if (event->Arg(key_) != nullptr) {  // of two with one name the first counts
      if (!json_.Scalar(&text_, &quoted)) return false;
      continue;
    }
    if (event->args_used == event->args.size()) event->args.emplace_back();
    auto& [key, value] = event->args[event->args_used++];
    key = key_;
    if (!json_.Scalar(&value, &quoted)) return false;
  }
}

bool KinetoEvents::Time(KinetoTime* time) {
  bool quoted = false;
  if (!json_.Scalar(&time->text, &quoted)) return false;
  time->ns = Nanoseconds(time->text);
  if (time->text.empty()) time->text.push_back(' ');  // an empty string is there, too
  return true;
}

}  // namespace c4::traces
