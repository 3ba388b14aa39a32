/* page_html.S - page.html as bytes of the program (page.h). */
    .section .rodata
    .global page_html
    .type page_html, @object
    .balign 16
page_html:
    .incbin PAGE_FILE
page_html_end:
    .byte 0
    .size page_html, . - page_html

    .global page_html_bytes
    .type page_html_bytes, @object
    .balign 8
page_html_bytes:
    .quad page_html_end - page_html
    .size page_html_bytes, 8

    .section .note.GNU-stack, "", @progbits
