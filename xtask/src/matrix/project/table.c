#include "text.h"
#include <stdint.h>

static const uint32_t table[TABLE_SIZE] = {3, 1, 4, 1, 5, 9, 2, 6};

unsigned table_find(const char *text)
{
    uint32_t hash = 2166136261u;
    /* A warning, which a hit must repeat. */
    int unused = TABLE_SIZE;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return table[hash % TABLE_SIZE];
}
