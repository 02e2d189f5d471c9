#include "cc/words.h"

// 0 where the words are found.
int main() {
  const std::vector<std::string> expected{"one", "two"};
  return Words(" one\n two ") == expected ? 0 : 1;
}
