// fiber_switch.h - from one stack to another, for the emulators of GPUs: saves the registers that a function
// must keep, and the stack pointer at *save; goes on where `to` was saved. Included once in a library.
// x86-64 only.
#pragma once

void fiber_switch(void **save, void *to);
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".hidden fiber_switch\n"
        ".type fiber_switch,@function\n"
        "fiber_switch:\n"
        " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp,(%rdi)\n"
        " movq %rsi,%rsp\n"
        " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        " ret\n"
        ".size fiber_switch,.-fiber_switch\n");
