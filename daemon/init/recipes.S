/* recipes.S - the job files of deploy/recipes as bytes of the program: a name
 * and a file each, both with a NUL behind them; an empty name ends them. */
    .macro recipe name
    .asciz "\name"
    .incbin "\name\().toml"
    .byte 0
    .endm

    .section .rodata
    .global recipes_bytes
    .type recipes_bytes, @object
recipes_bytes:
    recipe "quickstart"
    recipe "scratch-124m"
    recipe "gpt2-xl"
    recipe "gpt2-xl-12gb"
    recipe "llama-3.2-1b-sft"
    recipe "llama-3.2-1b-24gb"
    recipe "llama-3.2-1b-lora"
    recipe "llama-3.2-3b-24gb"
    recipe "llama-3.1-8b-24gb"
    recipe "llama-3.1-8b-qlora"
    recipe "llama-3.1-70b-qlora-48gb"
    recipe "llama-3.1-70b-qlora-2x24gb"
    recipe "qwen3-0.6b-sft"
    recipe "qwen3-0.6b-lora"
    .byte 0
    .size recipes_bytes, . - recipes_bytes

    .section .note.GNU-stack, "", @progbits
