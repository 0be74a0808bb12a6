#include "c4d_master/json_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "service/text.h"

namespace c4::c4d {

using service::Concat;
using Json = nlohmann::json;

namespace {

std::string Shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100);
}

}  // namespace

JsonFields::JsonFields(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
  if (!json_.is_object()) Fail(Concat("it is ", Shown(json_), "; give an object, {\"...\": ...}"));
}

void JsonFields::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(Concat(place_, ": ", what));
}

const Json* JsonFields::Find(const char* key) {
  known_.insert(key);
  if (!status_.ok()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() ? nullptr : &*found;
}

const Json* JsonFields::Object(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_object()) return value;
  Fail(Concat("\"", key, "\" is ", Shown(*value), "; give an object, {\"...\": ...}"));
  return nullptr;
}

const Json* JsonFields::List(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_array()) return value;
  Fail(Concat("\"", key, "\" is ", Shown(*value), "; give a list, [...]"));
  return nullptr;
}

void JsonFields::Number(const char* key, double min, double max, double* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_number() || !(field->get<double>() >= min) || !(field->get<double>() <= max)) {
    Fail(Concat("\"", key, "\" is ", Shown(*field), "; give a number from ", min, " to ", max));
    return;
  }
  *value = field->get<double>();
}

void JsonFields::Seconds(const char* key, double min_s, double max_s, int64_t* value_ns) {
  double seconds = static_cast<double>(*value_ns) / 1e9;
  Number(key, min_s, max_s, &seconds);
  if (status_.ok()) *value_ns = static_cast<int64_t>(seconds * 1e9);
}

void JsonFields::Flag(const char* key, bool* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_boolean()) {
    Fail(Concat("\"", key, "\" is ", Shown(*field), "; give true or false"));
    return;
  }
  *value = field->get<bool>();
}

void JsonFields::Text(const char* key, std::string* value) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_string() || field->get_ref<const std::string&>().find('\0') != std::string::npos) {
    Fail(Concat("\"", key, "\" is ", Shown(*field), "; give a text, \"...\""));
    return;
  }
  *value = field->get<std::string>();
}

void JsonFields::Word(const char* key, const std::vector<std::string>& choices, std::string* value) {
  std::string word = *value;
  Text(key, &word);
  if (!status_.ok() || word == *value) return;
  if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
    Fail(Concat("\"", key, "\" is \"", service::ToUtf8(word), "\"; give one of ",
                absl::StrJoin(choices, ", ")));
    return;
  }
  *value = word;
}

void JsonFields::Texts(const char* key, std::vector<std::string>* values) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  const auto is_text = [](const Json& item) {
    return item.is_string() && item.get_ref<const std::string&>().find('\0') == std::string::npos;
  };
  if (is_text(*field)) {
    *values = {field->get<std::string>()};
  } else if (field->is_array() && std::all_of(field->begin(), field->end(), is_text)) {
    *values = field->get<std::vector<std::string>>();
  } else {
    Fail(Concat("\"", key, "\" is ", Shown(*field), "; give a list of words, [\"...\", ...]"));
  }
}

absl::Status JsonFields::Done() {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : json_.items()) {
    if (known_.contains(key)) continue;
    Fail(Concat("unknown key \"", service::ToUtf8(key), "\"; there are ", absl::StrJoin(known_, ", ")));
    break;
  }
  return status_;
}

absl::StatusOr<Json> ParseJsonObject(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(Concat("it is no JSON: ", service::ToUtf8(error.what())));
  }
  if (!json.is_object()) return absl::InvalidArgumentError("it is no object; give {\"...\": ...}");
  return json;
}

}  // namespace c4::c4d
