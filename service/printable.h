// Makes text from outside fit for a terminal and a log: names of jobs, hosts and programs, tags, files of
// others. What comes out has no escape sequence, no further line, and nothing that turns the order of what
// is read around. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace c4::service {

// For a name or a sentence: each line end and tab is a space; each other control character (C0, DEL, C1),
// line or paragraph separator and mark of direction is one '?', and so is each byte that is not part of
// well-formed UTF-8.
std::string Printable(std::string_view text);

// For a whole page that holds names: the same, but line ends and tabs stay.
std::string PrintablePage(std::string_view text);

// All texts of a message and of those in it, as Printable gives them. What is printable already is not
// copied.
void MakePrintable(google::protobuf::Message* message);

}  // namespace c4::service
