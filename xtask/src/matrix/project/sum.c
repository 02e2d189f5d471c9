#include "text.h"
#include <assert.h>

long sum_of(const long *numbers, size_t count)
{
    long sum = 0;
    assert(numbers);
    for (size_t at = 0; at < count; at++)
        sum += numbers[at];
    return sum;
}
