/* complete_scripts.S - complete.bash, .zsh and .fish as texts of the program:
 * a name and a text each, both with a NUL after them; an empty name ends them. */
    .section .rodata
    .global complete_scripts
    .type complete_scripts, @object
complete_scripts:
    .irp shell, bash, zsh, fish
    .asciz "\shell"
    .incbin "complete.\shell"
    .byte 0
    .endr
    .byte 0
    .size complete_scripts, . - complete_scripts

    .section .note.GNU-stack, "", @progbits
