#include "service/printable.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <vector>

#include "service/text.h"

namespace c4::service {
namespace {

// Of well-formed UTF-8: bytes of the character at `at` when a terminal would obey it, else 0.
size_t ObeyedBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const unsigned first = byte(at);
  if (first < 0x20 || first == 0x7f) return 1;
  // C1: U+0080 to U+009F; U+009B begins a sequence as ESC [ does.
  if (first == 0xc2 && byte(at + 1) < 0xa0) return 2;
  if (first != 0xe2) return 0;
  const unsigned last = byte(at + 2);
  // U+200E, U+200F, U+2028 to U+202E (lines, directions), U+2066 to U+2069 (directions).
  const bool obeyed =
      (byte(at + 1) == 0x80 && (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae))) ||
      (byte(at + 1) == 0x81 && last >= 0xa6 && last <= 0xa9);
  return obeyed ? 3 : 0;
}

std::string Clean(std::string_view given, bool page) {
  const std::string text = ToUtf8(given);
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const bool kept = page && (text[at] == '\n' || text[at] == '\t');
    const size_t obeyed = kept ? 0 : ObeyedBytes(text, at);
    const bool space = text[at] == '\n' || text[at] == '\t' || text[at] == '\r';
    result.push_back(obeyed == 0 ? text[at] : space ? ' ' : '?');
    at += obeyed == 0 ? 1 : obeyed;
  }
  return result;
}

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    if (c < 0x20 || c == 0x7f) return false;  // bytes of 0x80 and more are negative
  }
  return true;
}

void CleanField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection* const reflection = message->GetReflection();
  const bool is_text = field->type() == FieldDescriptor::TYPE_STRING;
  if (!is_text && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
  if (!field->is_repeated()) {
    if (!is_text) return MakePrintable(reflection->MutableMessage(message, field));
    std::string scratch;
    const std::string& text = reflection->GetStringReference(*message, field, &scratch);
    if (!IsPlain(text)) reflection->SetString(message, field, Printable(text));
    return;
  }
  for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
    if (!is_text) {
      MakePrintable(reflection->MutableRepeatedMessage(message, field, i));
      continue;
    }
    std::string scratch;
    const std::string& text = reflection->GetRepeatedStringReference(*message, field, i, &scratch);
    if (!IsPlain(text)) reflection->SetRepeatedString(message, field, i, Printable(text));
  }
}

}  // namespace

std::string Printable(std::string_view text) {
  return Clean(text, false);
}

std::string PrintablePage(std::string_view text) {
  return Clean(text, true);
}

void MakePrintable(google::protobuf::Message* message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) CleanField(message, field);
}

}  // namespace c4::service
