#ifndef CC_TABLE_H_
#define CC_TABLE_H_

#ifdef __cplusplus
extern "C" {
#endif

// Prints a row of two columns, and says how many characters that were.
int table_row(const char* name, unsigned long number);

#ifdef __cplusplus
}
#endif

#endif  // CC_TABLE_H_
