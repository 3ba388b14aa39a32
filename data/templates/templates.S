/* templates.S - the templates that jobs name, as bytes of the program: a name
 * and a text each, both with a NUL after them; an empty name ends the list. */
    .section .rodata
    .global chat_templates
    .type chat_templates, @object
chat_templates:
    .irp name, chatml, llama3, mistral, qwen, none
    .asciz "\name"
    .incbin "\name\().jinja"
    .byte 0
    .endr
    .byte 0
    .size chat_templates, . - chat_templates

    .section .note.GNU-stack, "", @progbits
