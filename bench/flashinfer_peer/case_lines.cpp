#include "bench/flashinfer_peer/case_lines.h"

#include <algorithm>
#include <sstream>

namespace attn::flashinfer_peer {
namespace {

int positive(const std::string& text) {
  std::size_t used = 0;
  int number = 0;
  try {
    number = std::stoi(text, &used);
  } catch (const std::exception&) {
    throw Refusal("'" + text + "' is not a number");
  }
  if (used != text.size() || number < 1) throw Refusal("'" + text + "' is not a positive number");
  return number;
}

std::vector<int> numbers(const std::string& text) {
  std::vector<int> all;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t times = item.find('x');
    const int count = times == std::string::npos ? 1 : positive(item.substr(times + 1));
    all.insert(all.end(), count, positive(item.substr(0, times)));
  }
  return all;
}

Case parsed(const std::string& line) {
  std::istringstream words(line);
  std::string name, page, lengths, rows, more;
  if (!(words >> name >> page >> lengths >> rows) || words >> more)
    throw Refusal("a case is NAME PAGE LENGTHS ROWS");
  Case found{name, positive(page), numbers(lengths), numbers(rows)};
  if (found.rows.size() == 1) found.rows.resize(found.lengths.size(), found.rows.front());
  if (found.rows.size() != found.lengths.size()) throw Refusal("not as many rows as lengths");
  for (int i = 0; i < found.sequences(); ++i)
    if (found.rows[i] > found.lengths[i]) throw Refusal("a sequence has more rows than keys");
  return found;
}

}  // namespace

bool Case::one_row() const {
  return std::all_of(rows.begin(), rows.end(), [](int each) { return each == 1; });
}

std::vector<Case> read_cases(std::istream& lines) {
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos || line.front() == '#') continue;
    try {
      cases.push_back(parsed(line));
    } catch (const Refusal& refusal) {
      throw Refusal(std::string(refusal.what()) + ": " + line);
    }
  }
  return cases;
}

}  // namespace attn::flashinfer_peer
