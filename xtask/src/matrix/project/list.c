#include "text.h"
#include <stdlib.h>

struct list *list_add(struct list *list, const char *text)
{
    struct list *added = malloc(sizeof *added);
    if (!added)
        return list;
    added->next = list;
    added->text = text;
    return added;
}

size_t list_length(const struct list *list)
{
    size_t length = 0;
    for (; list; list = list->next)
        length++;
    return length;
}
