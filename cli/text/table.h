// A table of words for a terminal. Columns that a person misses least are left out until its lines fit. Pure;
// any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/text/screen.h"

namespace c4::cli {

// Orders names so that numbers in them are numbers: host2 before host10.
struct NumbersInOrder {
  bool operator()(const std::string& a, const std::string& b) const;
};

// A column of a table. Columns with the highest `spare` go first where a line does not fit; 0: it always
// stays.
struct Column {
  std::string head;
  int spare = 0;
};

// Rows of words under their heads, padded to the widest of each column; the last one is left as it is.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  size_t enough_of_last =
      0;  // of a last column of sentences: they are cut to this before a column goes; 0: whole

  std::string Text(const Screen& screen);

 private:
  std::vector<size_t> Widths() const;
  // Without the column that is missed least; false when all have to stay.
  bool Narrow();
};

}  // namespace c4::cli
