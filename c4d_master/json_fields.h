// One object of a configuration file in JSON, read field by field: each read checks type and range, and Done
// complains of keys that nobody asked for. The first fault is kept, as a sentence that names the place and
// says what to give; after it reads change nothing. Only for .cc files (nlohmann). One thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "service/status.h"

namespace c4::c4d {

class JsonFields {
 public:
  // `place`: what messages begin with, "alert rule slow". `json` outlives this.
  JsonFields(const nlohmann::json& json, std::string place);

  // The value of a key that has to be an object; nullptr where it is missing (or a fault has been found).
  const nlohmann::json* Object(const char* key);
  const nlohmann::json* List(const char* key);
  bool Has(const char* key) const { return json_.is_object() && json_.contains(key); }

  void Number(const char* key, double min, double max, double* value);
  // A number of seconds, as nanoseconds.
  void Seconds(const char* key, double min_s, double max_s, int64_t* value_ns);
  void Flag(const char* key, bool* value);
  void Text(const char* key, std::string* value);
  // One of these.
  void Word(const char* key, const std::vector<std::string>& choices, std::string* value);
  // A list of texts; a single text counts as a list of one.
  void Texts(const char* key, std::vector<std::string>* values);

  // Such a key may be there, and somebody else reads it.
  void Known(const char* key) { known_.insert(key); }

  void Fail(const std::string& what);
  const absl::Status& status() const { return status_; }
  // The first fault; else one for keys that are not known.
  absl::Status Done();

 private:
  const nlohmann::json* Find(const char* key);

  const nlohmann::json& json_;
  const std::string place_;
  std::set<std::string> known_;
  absl::Status status_;
};

// The whole text: one JSON object. InvalidArgument otherwise.
absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& text);

}  // namespace c4::c4d
