/* foreign_keys.S - foreign_keys.toml as a text of the program. */
    .section .rodata
    .global foreign_keys_text
    .type foreign_keys_text, @object
foreign_keys_text:
    .incbin "foreign_keys.toml"
    .byte 0
    .size foreign_keys_text, . - foreign_keys_text

    .section .note.GNU-stack, "", @progbits
