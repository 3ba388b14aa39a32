/* embedded.S - files as bytes of the program: a name and a text each, both with
 * a NUL after them; an empty name ends a list. */
    .macro embed name ending
    .asciz "\name"
    .incbin "\name\ending"
    .byte 0
    .endm

    .section .rodata
    .global embedded_recipes
    .type embedded_recipes, @object
embedded_recipes:
    .irp name, quickstart, scratch-124m, gpt2-xl, gpt2-xl-12gb, llama-3.2-1b-sft, llama-3.2-1b-24gb, llama-3.2-1b-lora, llama-3.2-3b-24gb, llama-3.1-8b-24gb, llama-3.1-8b-qlora, llama-3.1-70b-80gb, llama-3.1-70b-qlora-48gb, llama-3.1-70b-qlora-2x24gb, qwen3-0.6b-sft, qwen3-0.6b-lora, qwen3-14b-24gb, qwen3-8b-long-yarn, gemma-3-1b-sft, phi-4-qlora-24gb, mistral-large-123b-80gb, smollm3-3b-24gb
    embed "\name", ".toml"
    .endr
    .byte 0
    .size embedded_recipes, . - embedded_recipes

    .global embedded_formats
    .type embedded_formats, @object
embedded_formats:
    .irp name, deepspeed, axolotl, llamafactory, torchtune, hf, axolotl_data, transformers
    embed "\name", ".yaml"
    .endr
    .byte 0
    .size embedded_formats, . - embedded_formats

    .section .note.GNU-stack, "", @progbits
