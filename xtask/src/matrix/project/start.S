#define VALUE 42
    .text
    .globl start_value
    .type start_value, @function
start_value:
#if defined(__x86_64__)
    movl $VALUE, %eax
    ret
#elif defined(__aarch64__)
    mov w0, #VALUE
    ret
#endif
    .size start_value, .-start_value
    .section .note.GNU-stack, "", @progbits
