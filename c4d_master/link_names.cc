#include "c4d_master/link_names.h"

namespace c4::c4d {

std::string CableOf(std::string_view link) {
  std::string cable(link);
  const size_t mark = cable.find_first_of("<>");
  if (mark != std::string::npos) cable[mark] = '-';
  return cable;
}

std::string_view LowerEndOf(std::string_view link) {
  return link.substr(0, link.find_first_of("<>"));
}

std::string_view UpperEndOf(std::string_view link) {
  const size_t mark = link.find_first_of("<>");
  return mark == std::string_view::npos ? std::string_view() : link.substr(mark + 1);
}

bool LeadsUp(std::string_view link) {
  const size_t mark = link.find_first_of("<>");
  return mark != std::string_view::npos && link[mark] == '>';
}

}  // namespace c4::c4d
