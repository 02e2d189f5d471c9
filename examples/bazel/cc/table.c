#include "cc/table.h"

#include <stdio.h>

int table_row(const char* name, unsigned long number) {
  return printf("%-20s %8lu\n", name, number);
}
