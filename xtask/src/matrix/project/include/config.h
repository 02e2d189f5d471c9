#define TABLE_SIZE 64
#ifdef __has_include
#if __has_include("local.h")
#include "local.h"
#endif
#endif
