#include <iostream>
#include <iterator>
#include <map>
#include <string>

#include "cc/table.h"
#include "cc/words.h"

// Counts the words on standard input.
int main() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  std::map<std::string, unsigned long> counts;
  for (const std::string& word : Words(text)) ++counts[word];
  for (const auto& entry : counts) table_row(entry.first.c_str(), entry.second);
}
