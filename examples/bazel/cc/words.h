#ifndef CC_WORDS_H_
#define CC_WORDS_H_

#include <string>
#include <vector>

// The words of a text, in their order.
std::vector<std::string> Words(const std::string& text);

#endif  // CC_WORDS_H_
