/* complete.h - what a shell offers after TAB, from the tables of a program.
 *
 *   PROGRAM __complete WORD...   the words typed after the program's name; the
 *                                last is being typed ("" after a blank)
 *
 * Each line of the answer is a candidate for the whole last word, then a tab
 * and its help where it has one. A candidate that ends in '=' wants a value.
 * The lines ":files N" and ":folders N" ask the shell to add names of files or
 * folders that begin with what follows the first N bytes of the word.
 *
 * The shells' own part is one short script for each, which calls this. */
#pragma once

#include "daemon/cli/program.h"

#include <stdbool.h>
#include <stdio.h>

/* The value that is being typed. */
struct completion {
    const char *before; /* the part of the word that stays, as "--job=" */
    const char *value;  /* what follows it */
};

/* Print before + word if it begins with what is typed. */
void complete_offer(
        const struct completion *completion, const char *word,
        const char *help);

/* Offers what a placeholder such as "JOB" or "KEY" stands for, where it is
 * neither a file, a folder nor a plain word. */
typedef void complete_value_fn(
        const struct completion *completion, const char *placeholder);

/* If argv asks for it, print the candidates and return true. `values` may be
 * NULL. */
bool complete_main(
        const struct cli_program *program, int argc, char **argv,
        complete_value_fn *values);

/* The script for "bash", "zsh" or "fish". ZD_ERR_USAGE for another shell. */
enum zd_status complete_print_script(
        const char *program, const char *shell, FILE *stream);
