#ifndef TEXT_H
#define TEXT_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
struct list {
    struct list *next;
    const char *text;
};
struct list *list_add(struct list *list, const char *text);
size_t list_length(const struct list *list);
size_t text_words(const char *text);
unsigned table_find(const char *text);
long sum_of(const long *numbers, size_t count);
int start_value(void);
#ifdef __cplusplus
}
#endif
#endif
