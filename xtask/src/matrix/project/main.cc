#include "shapes.h"
#include "text.h"
#include <cstdio>

int main()
{
    struct list *list = nullptr;
    for (const Shape *shape : shapes()) {
        std::string name = name_of(*shape);
        std::printf("%s %zu %u\n", name.c_str(), text_words(name.c_str()), table_find(name.c_str()));
        list = list_add(list, "one");
    }
    long numbers[] = {1, 2, 3};
    std::printf("%zu %ld %d\n", list_length(list), sum_of(numbers, 3), start_value());
    return 0;
}
